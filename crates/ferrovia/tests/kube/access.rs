//! Certificates, tokens, exec plugins and proxies.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrovia::source::kube::{Api, ApiAccess, Unobserved};
use ferrovia_lab::Folder;
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Auth, End, Kind, Request};

use super::support::{Received, Source, runtime, server, service, times, wait_until, web};

fn with_auth(tls: bool, auth: Auth) -> ApiServer {
    let server = server(ApiServerOptions {
        tls,
        auth,
        ..ApiServerOptions::default()
    });
    server.apply(service("web", 80)).unwrap();
    server
}

fn access(kubeconfig: PathBuf) -> ApiAccess {
    ApiAccess {
        kubeconfig: Some(kubeconfig),
        qps: -1.0,
        ..ApiAccess::default()
    }
}

fn assert_works(server: &ApiServer, kubeconfig: PathBuf) -> Source {
    let source = Source::start(access(kubeconfig), times());
    source.wait(|received| received.is_listed() && received.has(&web("web")));
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.user.is_some())
    );
    source
}

#[test]
fn authenticates_with_a_client_certificate() {
    let (server, folder) = (with_auth(true, Auth::ClientCertificate), Folder::new());
    assert_works(&server, server.kubeconfig(folder.path()).unwrap());
}

#[test]
fn authenticates_with_a_token() {
    let (server, folder) = (with_auth(true, Auth::Token), Folder::new());
    assert_works(&server, server.kubeconfig(folder.path()).unwrap());
}

#[test]
fn a_token_file_that_changes_is_read_again_when_the_old_token_is_refused() {
    let (server, folder) = (with_auth(true, Auth::TokenFile), Folder::new());
    let source = assert_works(&server, server.kubeconfig(folder.path()).unwrap());
    rotate(&server, &source, || {
        server.kubeconfig(folder.path()).unwrap();
    });
}

#[test]
fn a_client_certificate_that_changes_is_read_again() {
    let (server, folder) = (with_auth(true, Auth::ClientCertificate), Folder::new());
    let kubeconfig = server.kubeconfig(folder.path()).unwrap();
    let mut times = times();
    times.credentials = Duration::ZERO;
    let source = Source::start(access(kubeconfig), times);
    source.wait(Received::is_listed);
    // As the kubelet and kubeadm do before the old one expires.
    server.renew_client_certificate().unwrap();
    server.kubeconfig(folder.path()).unwrap();
    let newest = server.client_certificate();
    server.reset_connections();
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
    let resumed = server.requests();
    let shown = resumed.iter().rev().find_map(|r| r.certificate.clone());
    assert_eq!(shown, Some(newest));
}

#[test]
fn a_server_at_an_ipv6_address_is_reached() {
    let server = server(ApiServerOptions {
        listen: "[::1]:0".parse().unwrap(),
        tls: true,
        auth: Auth::Token,
        ..ApiServerOptions::default()
    });
    server.apply(service("web", 80)).unwrap();
    let folder = Folder::new();
    assert!(server.url().starts_with("https://[::1]:"));
    assert_works(&server, server.kubeconfig(folder.path()).unwrap());
}

#[test]
fn a_kubeconfig_that_changes_is_read_again() {
    let (server, folder) = (with_auth(false, Auth::Token), Folder::new());
    let source = assert_works(&server, server.kubeconfig(folder.path()).unwrap());
    rotate(&server, &source, || {
        server.kubeconfig(folder.path()).unwrap();
    });
}

#[test]
fn a_changed_token_is_used_before_the_old_one_is_refused() {
    let (server, folder) = (with_auth(false, Auth::TokenFile), Folder::new());
    let kubeconfig = server.kubeconfig(folder.path()).unwrap();
    let mut times = times();
    times.credentials = Duration::ZERO;
    let source = Source::start(access(kubeconfig), times);
    source.wait(Received::is_listed);
    server.rotate_token();
    server.kubeconfig(folder.path()).unwrap();
    server.end_watches(Kind::Service, End::Clean);
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.user.is_some())
    );
}

#[test]
fn an_exec_plugin_gives_tokens_and_gives_new_ones() {
    let (server, folder) = (with_auth(true, Auth::Token), Folder::new());
    server.kubeconfig(folder.path()).unwrap();
    folder.write("now", &server.token());
    folder.write_program(
        "plugin",
        "echo \"{\\\"apiVersion\\\":\\\"client.authentication.k8s.io/v1\\\",\
         \\\"kind\\\":\\\"ExecCredential\\\",\\\"status\\\":{\\\"token\\\":\\\"$(cat \"$1\")\\\"}}\"",
    );
    let user = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: ./plugin, args: [{}], interactiveMode: Never}}}}",
        folder.path().join("now").display()
    );
    let kubeconfig = write_kubeconfig(
        &folder,
        &server.url(),
        "certificate-authority: ca.crt",
        &user,
    );
    let source = assert_works(&server, kubeconfig);
    rotate(&server, &source, || {
        folder.write("now", &server.token());
    });
}

/// The token changes under a running source: it gets a new one from wherever it got the old one.
fn rotate(server: &ApiServer, source: &Source, publish: impl FnOnce()) {
    server.rotate_token();
    publish();
    server.reset_connections();
    // Received on the old connection, the change would need no new token.
    server
        .wait_until(|server| server.requests().iter().any(|r| r.user.is_none()))
        .unwrap();
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
    let refused = server
        .requests()
        .iter()
        .filter(|r| r.user.is_none())
        .count();
    assert!((1..=4).contains(&refused), "{refused} refused");
}

#[test]
fn keeps_retrying_without_new_credentials() {
    let (server, folder) = (with_auth(false, Auth::TokenFile), Folder::new());
    let source = assert_works(&server, server.kubeconfig(folder.path()).unwrap());
    server.rotate_token();
    server.reset_connections();
    server.apply(service("web", 81)).unwrap();
    source.wait_seen(|seen| seen.codes.iter().filter(|code| **code == Some(401)).count() > 8);
    server.kubeconfig(folder.path()).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
}

#[test]
fn refuses_an_unknown_authority_unless_configured() {
    let (server, folder) = (with_auth(true, Auth::None), Folder::new());
    let other = with_auth(true, Auth::None);
    other.kubeconfig(folder.path()).unwrap();
    let strict = write_kubeconfig(
        &folder,
        &server.url(),
        "certificate-authority: ca.crt",
        "{}",
    );
    let source = Source::start(access(strict), times());
    source.wait_seen(|seen| seen.codes.len() > 4);
    assert!(source.seen(|seen| seen.codes.iter().all(Option::is_none)));
    drop(source);
    let lax = write_kubeconfig(
        &folder,
        &server.url(),
        "insecure-skip-tls-verify: true",
        "{}",
    );
    assert_works(&server, lax);
}

#[test]
fn the_master_address_takes_precedence() {
    let (server, folder) = (with_auth(true, Auth::ClientCertificate), Folder::new());
    let written = server.kubeconfig(folder.path()).unwrap();
    let text = fs::read_to_string(&written).unwrap();
    let elsewhere = folder.write(
        "elsewhere",
        &text.replace(&server.url(), "https://192.0.2.1:1"),
    );
    let mut access = access(elsewhere);
    access.master = Some(server.url());
    let source = Source::start(access, times());
    source.wait(Received::is_listed);
}

#[test]
fn a_proxy_is_used() {
    let (server, folder) = (with_auth(true, Auth::Token), Folder::new());
    server.kubeconfig(folder.path()).unwrap();
    let (proxy, used) = connect_proxy();
    let cluster = format!("certificate-authority: ca.crt, proxy-url: 'http://{proxy}'");
    let user = format!("{{token: {}}}", server.token());
    let kubeconfig = write_kubeconfig(&folder, &server.url(), &cluster, &user);
    assert_works(&server, kubeconfig);
    assert!(used.load(Ordering::Relaxed) >= 1);
    let is_http2 = |request: &Request| request.version == http::Version::HTTP_2;
    assert!(server.requests().iter().all(is_http2));
}

#[test]
fn reports_a_failed_exec_plugin_without_its_output() {
    let folder = Folder::new();
    let cases = [
        ("echo S3CRET; exit 3", "ended with exit status: 3"),
        (
            "echo 'token: [S3CRET'",
            "what it wrote is not an ExecCredential",
        ),
        ("exit 0", "plugin"),
    ];
    for (script, expected) in cases {
        folder.write_program("plugin", script);
        let user = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never}}";
        let error = refusal(&write_kubeconfig(
            &folder,
            "https://192.0.2.1",
            "tls-server-name: a",
            user,
        ));
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("plugin\""), "{error}");
        assert!(!error.contains("S3CRET"), "{error}");
    }
}

#[test]
fn an_exec_plugin_that_hangs_is_killed_with_all_it_started() {
    let folder = Folder::new();
    let started = folder.path().join("started");
    let script = format!("sleep 1000 & echo $$ $! > {}; wait", started.display());
    folder.write_program("plugin", &script);
    let error = refusal(&write_kubeconfig(
        &folder,
        "https://192.0.2.1",
        "tls-server-name: a",
        PLUGIN,
    ));
    assert!(error.contains("was killed"), "{error}");
    let started = fs::read_to_string(started).unwrap();
    for process in started.split_whitespace() {
        let state = PathBuf::from(format!("/proc/{process}/stat"));
        wait_until(|| fs::read_to_string(&state).map_or(true, |state| state.contains(") Z ")));
    }
}

#[test]
fn a_plugin_that_hangs_later_costs_one_run_at_a_time_and_no_thread() {
    let (server, folder) = (with_auth(false, Auth::Token), Folder::new());
    let runs = folder.path().join("runs");
    let first = folder.write("first", &plugin_output(&server.token(), None));
    folder.write_program(
        "plugin",
        &format!(
            "echo $$ >> {0}; test $(wc -l < {0}) = 1 && exec cat {1}; exec sleep 1000",
            runs.display(),
            first.display()
        ),
    );
    let kubeconfig = write_kubeconfig(&folder, &server.url(), "tls-server-name: a", PLUGIN);
    let mut times = times();
    times.answer = Duration::from_secs(1);
    let source = Source::start(access(kubeconfig), times);
    source.wait(Received::is_listed);
    server.rotate_token();
    server.reset_connections();
    let count = || fs::read_to_string(&runs).map_or(0, |runs| runs.lines().count());
    wait_until(|| count() > 4);
    let plugins = fs::read_to_string(&runs).unwrap();
    let is_running = |process: &&str| {
        fs::read_to_string(format!("/proc/{process}/stat"))
            .is_ok_and(|stat| stat.contains("(sleep)"))
    };
    let running = plugins.lines().filter(is_running).count();
    assert!(running <= 1, "{running} of {}", plugins.lines().count());
    // Other tests run in this process too, but their threads end. Those of four hung plugins would stay.
    wait_until(|| threads_named("kube-access") <= 2);
    drop(source);
}

fn threads_named(name: &str) -> usize {
    let has_name = |thread: &fs::DirEntry| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    threads.filter(has_name).count()
}

#[test]
fn a_plugin_runs_again_before_its_token_expires_and_not_sooner() {
    let (server, folder) = (with_auth(false, Auth::Token), Folder::new());
    let runs = folder.path().join("runs");
    let now = folder.path().join("now");
    folder.write_program(
        "plugin",
        &format!("echo >> {}; exec cat {}", runs.display(), now.display()),
    );
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    folder.write(
        "now",
        &plugin_output(&server.token(), Some(&later.to_string())),
    );
    let kubeconfig = write_kubeconfig(&folder, &server.url(), "tls-server-name: a", PLUGIN);
    let source = Source::start(access(kubeconfig.clone()), times());
    source.wait(Received::is_listed);
    for port in 81..85 {
        server.end_watches(Kind::Service, End::Clean);
        server.apply(service("web", port)).unwrap();
        source.wait(|received| received.is(&web("web"), &port.to_string()));
    }
    let count = || fs::read_to_string(&runs).unwrap().lines().count();
    assert_eq!(count(), 1);
    drop(source);

    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(12);
    folder.write(
        "now",
        &plugin_output(&server.token(), Some(&soon.to_string())),
    );
    let source = Source::start(access(kubeconfig), times());
    source.wait(Received::is_listed);
    wait_until(|| {
        server.end_watches(Kind::Service, End::Clean);
        std::thread::sleep(Duration::from_millis(100));
        count() > 2
    });
    assert!(server.requests().iter().all(|r| r.user.is_some()));
    drop(source);
}

#[test]
fn an_exec_plugin_gives_certificates() {
    let (server, folder) = (with_auth(true, Auth::ClientCertificate), Folder::new());
    server.kubeconfig(folder.path()).unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let credential = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "clientCertificateData": read("client.crt"),
            "clientKeyData": read("client.key"),
        },
    });
    let output = folder.write("output", &credential.to_string());
    folder.write_program("plugin", &format!("exec cat {}", output.display()));
    let kubeconfig = write_kubeconfig(
        &folder,
        &server.url(),
        "certificate-authority: ca.crt",
        PLUGIN,
    );
    assert_works(&server, kubeconfig);
}

const PLUGIN: &str = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never}}";

/// What a plugin prints.
fn plugin_output(token: &str, expires: Option<&str>) -> String {
    let credential = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": expires},
    });
    credential.to_string()
}

fn refusal(kubeconfig: &Path) -> String {
    let mut times = times();
    times.answer = Duration::from_secs(5);
    let opened = Api::open(access(kubeconfig.to_owned()), times, Arc::new(Unobserved));
    match runtime().block_on(opened) {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.to_string(),
    }
}

fn write_kubeconfig(folder: &Folder, url: &str, cluster: &str, user: &str) -> PathBuf {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
         contexts: [{{name: lab, context: {{cluster: lab, user: lab}}}}]\n\
         clusters: [{{name: lab, cluster: {{server: '{url}', {cluster}}}}}]\n\
         users: [{{name: lab, user: {user}}}]\n"
    );
    folder.write("own", &text)
}

/// A proxy that knows `CONNECT` and counts how often it was asked. Its threads end with the connections.
fn connect_proxy() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let used = Arc::new(AtomicU32::new(0));
    let counter = used.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            counter.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || tunnel(client));
        }
    });
    (address, used)
}

fn tunnel(mut client: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let target = head.strip_prefix("CONNECT ")?.split(' ').next()?;
    let mut server = TcpStream::connect(target).ok()?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let (mut from, mut to) = (server.try_clone().ok()?, client.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    let _ = std::io::copy(&mut client, &mut server);
    let _ = server.shutdown(std::net::Shutdown::Both);
    Some(())
}
