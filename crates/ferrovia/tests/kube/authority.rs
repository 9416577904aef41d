//! The server's certificate authority is replaced, and later the file that contains it.

use std::fs;
use std::time::Duration;

use ferrovia::source::kube::ApiAccess;
use ferrovia_lab::Folder;
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions};
use ferrovia_lab::waiting;

use super::support::{Source, server, service, times, web};

const KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
clusters: [{name: lab, cluster: {server: 'URL', certificate-authority: ca.crt}}]
users: [{name: lab, user: {}}]
";

#[test]
fn reads_a_replaced_authority_file_when_the_server_has_a_certificate_of_a_new_authority() {
    let folder = Folder::new();
    let options = || ApiServerOptions {
        tls: true,
        ..ApiServerOptions::default()
    };
    let before = server(options());
    before.apply(service("web", 80)).unwrap();
    before.kubeconfig(folder.path()).unwrap();
    let kubeconfig = folder.write("own", &KUBECONFIG.replace("URL", &before.url()));
    let access = ApiAccess {
        kubeconfig: Some(kubeconfig),
        qps: -1.0,
        ..ApiAccess::default()
    };
    let mut times = times();
    // Not by the periodic check of the files.
    times.credentials = Duration::from_secs(3600);
    let source = Source::start(access, times);
    source.wait(|received| received.is(&web("web"), "80"));

    let listen = before.address();
    let objects = before.back_up();
    let old_authority = fs::read(folder.path().join("ca.crt")).unwrap();
    drop(before);
    let after = waiting::wait(|| {
        let options = ApiServerOptions {
            listen,
            ..options()
        };
        ApiServer::start(options).map_err(|error| error.to_string())
    });
    // It has the same objects, as after a restart.
    after.restore(&objects);
    after.apply(service("web", 81)).unwrap();
    // It is not trusted while the file contains the old authority.
    let asked = source.seen(|seen| seen.codes.len());
    source.wait_seen(|seen| seen.codes.len() > asked + 4);
    assert!(after.requests().is_empty());
    assert!(source.read(|received| received.is(&web("web"), "80")));

    after.kubeconfig(folder.path()).unwrap();
    assert_ne!(
        fs::read(folder.path().join("ca.crt")).unwrap(),
        old_authority
    );
    source.wait(|received| received.is(&web("web"), "81"));
}
