//! The server gets a certificate of another authority, and the file that names the authority is replaced.

use std::fs;
use std::time::Duration;

use ferrovia::source::kube::ApiAccess;
use ferrovia_lab::Folder;
use ferrovia_lab::apiserver::{ApiServer, Options};
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
fn a_replaced_authority_file_is_read_when_the_server_has_a_certificate_of_another_one() {
    let folder = Folder::new();
    let options = || Options {
        tls: true,
        ..Options::default()
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
    // Not by the look at the files now and then.
    times.credentials = Duration::from_secs(3600);
    let source = Source::start(access, times);
    source.wait(|told| told.is(&web("web"), "80"));

    let listen = before.address();
    let objects = before.back_up();
    let old_authority = fs::read(folder.path().join("ca.crt")).unwrap();
    drop(before);
    let after = waiting::wait(|| {
        let options = Options {
            listen,
            ..options()
        };
        ApiServer::start(options).map_err(|error| error.to_string())
    });
    // It has the same objects, as after a restart.
    after.restore(&objects);
    after.apply(service("web", 81)).unwrap();
    // It is not trusted for as long as the file names the old authority.
    let asked = source.seen(|seen| seen.codes.len());
    source.wait_seen(|seen| seen.codes.len() > asked + 4);
    assert!(after.requests().is_empty());
    assert!(source.read(|told| told.is(&web("web"), "80")));

    after.kubeconfig(folder.path()).unwrap();
    assert_ne!(
        fs::read(folder.path().join("ca.crt")).unwrap(),
        old_authority
    );
    source.wait(|told| told.is(&web("web"), "81"));
}
