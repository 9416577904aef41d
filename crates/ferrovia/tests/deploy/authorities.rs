//! Machines without certificate authorities, as an image of nothing but the binary is.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions};

use super::support::{FERROVIA, Folder, run};

/// Asks the server for everything, as if there were no authorities on this machine.
fn plan(kubeconfig: &Path) -> Output {
    run(Command::new(FERROVIA)
        .args(["plan", "--node-name=node-1", "--kubeconfig"])
        .arg(kubeconfig)
        .env("SSL_CERT_FILE", "/dev/null")
        .env("SSL_CERT_DIR", "/dev/null"))
}

fn assert_works(kubeconfig: &Path) {
    let output = plan(kubeconfig);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_server_without_encryption_needs_none() {
    let (server, folder) = (
        ApiServer::start(ApiServerOptions::default()).unwrap(),
        Folder::new(),
    );
    assert_works(&server.kubeconfig(folder.path()).unwrap());
}

#[test]
fn a_server_with_a_certificate_needs_one_that_is_named() {
    let options = ApiServerOptions {
        tls: true,
        ..ApiServerOptions::default()
    };
    let (server, folder) = (ApiServer::start(options).unwrap(), Folder::new());
    let kubeconfig = server.kubeconfig(folder.path()).unwrap();
    assert_works(&kubeconfig);

    let text = fs::read_to_string(&kubeconfig).unwrap();
    let named = text
        .lines()
        .find(|line| line.contains("certificate-authority:"))
        .unwrap();
    let lax = text.replace(named, "    insecure-skip-tls-verify: true");
    fs::write(&kubeconfig, lax).unwrap();
    assert_works(&kubeconfig);

    fs::write(&kubeconfig, text.replace(&format!("{named}\n"), "")).unwrap();
    let output = plan(&kubeconfig);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("install the package ca-certificates"),
        "{said}"
    );
}
