//! Profiles that say what the process may do, against what it does.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions};
use ferrovia_lab::waiting::{SOON, wait_until};
use ferrovia_lab::{Role, Spec, World};
use serde_json::Value;

use super::support::{FERROVIA, Folder, path, read, succeed};

const SERVICE: &str = "\
kind: Service
apiVersion: v1
metadata: { name: web }
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  ports: [{ port: 80, nodePort: 30080 }]
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: { name: web-1, labels: { kubernetes.io/service-name: web } }
addressType: IPv4
ports: [{ port: 8080 }]
endpoints: [{ addresses: [10.244.2.10] }]
";

/// System calls by name.
type Calls = BTreeSet<String>;

/// A summary of the calls of a program and all its threads and children. The program stays the child of who starts it, the tracer does not.
fn trace(tracer: &mut Command, summary: &Path) {
    tracer
        .args(["-D", "-f", "-qq", "-c", "-U", "name", "-o"])
        .arg(summary);
}

/// The summary is there when the tracer has seen the program end.
fn calls(summary: &Path) -> Calls {
    let names = || {
        let text = std::fs::read_to_string(summary).unwrap_or_default();
        // Beside names there are headings, lines, and words about threads that end while they are looked at.
        let is_name = |line: &&str| {
            line.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !["", "syscall", "total"].contains(line)
        };
        let names = text.lines().map(str::trim).filter(is_name);
        names.map(str::to_owned).collect::<Calls>()
    };
    wait_until("the tracer's summary", || names().contains("execve"));
    names()
}

/// The calls of a daemon in this mode, from its start to its end, with a change and some questions in between.
fn daemon(mode: &[&str]) -> Calls {
    let folder = Folder::new();
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    std::fs::write(manifests.join("web.yaml"), SERVICE).unwrap();
    let log = folder.path().join("log");
    let summary = folder.path().join("summary");
    let world = World::new(Spec::default()).unwrap();
    let mut command = world.exec(Role::Node, "strace");
    trace(&mut command, &summary);
    command
        .args([FERROVIA, "run", "--node-name=node-1", "--manifests"])
        .arg(&manifests)
        .arg(format!(
            "--admin-socket={}",
            folder.path().join("admin.sock").display()
        ))
        .arg("--web-bind-address=127.0.0.1:10247")
        .args(mode)
        .stderr(std::fs::File::create(&log).unwrap());
    let mut daemon = Ended(command.spawn().unwrap());
    wait_until("ready", || read(&log).contains("ready: all services"));
    {
        let _inside = world.enter(Role::Node).unwrap();
        for (port, page) in [
            (10256, "healthz"),
            (10249, "metrics"),
            (10247, "api/v1/overview"),
        ] {
            wait_until(page, || {
                get(port, page).is_ok_and(|it| it.starts_with("HTTP/1.1 200"))
            });
        }
    }
    let changed = SERVICE.replace("10.244.2.10", "10.244.2.11");
    std::fs::write(manifests.join("web.yaml"), changed).unwrap();
    std::fs::remove_file(manifests.join("web.yaml")).unwrap();
    let done = daemon.end();
    assert!(done.success(), "{done}: {}", read(&log));
    calls(&summary)
}

/// A process that does not outlive the test.
struct Ended(Child);

impl Ended {
    fn end(&mut self) -> std::process::ExitStatus {
        succeed(Command::new("kill").arg(self.0.id().to_string()));
        self.0.wait().unwrap()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(port: u16, page: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SOON))?;
    write!(
        stream,
        "GET /{page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The system calls of a client of an API server over TLS.
fn client() -> Calls {
    let server = ApiServer::start(ApiServerOptions {
        tls: true,
        ..ApiServerOptions::default()
    })
    .unwrap();
    let folder = Folder::new();
    let kubeconfig = server.kubeconfig(folder.path()).unwrap();
    let summary = folder.path().join("summary");
    let mut command = Command::new("strace");
    trace(&mut command, &summary);
    command
        .args([FERROVIA, "plan", "--node-name=node-1", "--kubeconfig"])
        .arg(kubeconfig)
        .stdout(Stdio::null());
    succeed(&mut command);
    calls(&summary)
}

/// What the profile for containers allows.
fn profile() -> Calls {
    let profile: Value =
        serde_json::from_str(&read(&path("deploy/seccomp/ferrovia.json"))).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let mut allowed = Calls::new();
    for group in profile["syscalls"].as_array().unwrap() {
        assert_eq!(group["action"], "SCMP_ACT_ALLOW");
        let names = group["names"].as_array().unwrap().iter();
        allowed.extend(names.map(|name| name.as_str().unwrap().to_owned()));
    }
    allowed
}

/// What a set of systemd's allows, with the sets it names.
fn set(name: &str) -> Calls {
    let mut allowed = Calls::new();
    let listed = succeed(Command::new("systemd-analyze").args(["syscall-filter", name]));
    for word in listed.lines().skip(1).map(str::trim) {
        match word {
            comment if comment.starts_with('#') => {}
            other if other.starts_with('@') => allowed.extend(set(other)),
            call => {
                allowed.insert(call.to_owned());
            }
        }
    }
    allowed
}

fn check(who: &str, calls: &Calls, allowed: &Calls) {
    assert!(calls.len() > 20, "{who}: {calls:?}");
    let refused: Vec<_> = calls.difference(allowed).collect();
    assert!(
        refused.is_empty(),
        "{who}: these would be refused: {refused:?}"
    );
}

/// In every mode that this machine's kernel has. That of ipvs speaks netlink and runs tools as the one of iptables does.
#[test]
fn the_seccomp_profile_allows_all_that_is_done() {
    let allowed = profile();
    check("client", &client(), &allowed);
    for mode in ["nftables", "iptables", "userspace"] {
        check(mode, &daemon(&[&format!("--proxy-mode={mode}")]), &allowed);
    }
    let bound = ["--proxy-mode=userspace", "--userspace-portals=bind"];
    check("bound portals", &daemon(&bound), &allowed);
}

#[test]
fn the_seccomp_profile_allows_no_way_out() {
    let allowed = profile();
    for call in [
        "mount",
        "unshare",
        "setns",
        "ptrace",
        "bpf",
        "init_module",
        "finit_module",
        "kexec_load",
        "reboot",
        "swapon",
        "keyctl",
        "perf_event_open",
        "process_vm_writev",
        "open_by_handle_at",
        "pivot_root",
        "chroot",
        "userfaultfd",
        "io_uring_setup",
    ] {
        assert!(!allowed.contains(call), "{call}");
    }
}

#[test]
fn the_unit_allows_all_that_is_done() {
    let unit = read(&path("deploy/systemd/ferrovia.service"));
    let filters = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let filters: Vec<_> = filters.collect();
    assert_eq!(filters, ["@system-service"]);
    check(
        "nftables",
        &daemon(&["--proxy-mode=nftables"]),
        &set("@system-service"),
    );
}

#[test]
fn the_unit_is_sound_and_tight() {
    let folder = Folder::new();
    let unit = folder.path().join("ferrovia.service");
    let text = read(&path("deploy/systemd/ferrovia.service"));
    std::fs::write(&unit, text.replace("/usr/bin/ferrovia", FERROVIA)).unwrap();
    succeed(
        Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&unit),
    );
    // From 0, nothing is possible, to 100.
    succeed(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--threshold=20"])
            .arg(&unit),
    );
}

/// systemd gives up on what ends five times in ten seconds, which a configuration with a fault in it does.
#[test]
fn the_unit_is_started_again_for_as_long_as_it_takes() {
    let unit = read(&path("deploy/systemd/ferrovia.service"));
    let (about, service) = unit.split_once("[Service]").unwrap();
    assert!(about.contains("\nStartLimitIntervalSec=0\n"), "{about}");
    assert!(service.contains("\nRestart=always\n"), "{service}");
}

#[test]
fn the_apparmor_profile_lets_the_socket_be_made() {
    let profile = read(&path("deploy/apparmor/ferrovia"));
    // `admin.sock.PID` becomes `admin.sock`.
    let rule = "/{,var/}run/ferrovia/admin.sock{,.*} rw,";
    assert!(profile.contains(rule), "{profile}");
}

#[test]
fn the_apparmor_profile_can_be_read() {
    succeed(
        Command::new("apparmor_parser")
            .args(["--skip-kernel-load", "--skip-cache", "--abort-on-error"])
            .arg(path("deploy/apparmor/ferrovia")),
    );
}
