//! The real program: what it answers, by which name it was called, and with which code it ends.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use super::support::{Folder, HEADER};

const FERROVIA: &str = env!("CARGO_BIN_EXE_ferrovia");

fn run(program: impl AsRef<Path>, arguments: &[&str]) -> Output {
    Command::new(program.as_ref())
        .args(arguments)
        .output()
        .expect("the program can be started")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// It ends with 1 and these words on standard error.
fn refuses(arguments: &[&str], words: &[&str]) {
    let output = run(FERROVIA, arguments);
    let error = said(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    for word in words {
        assert!(
            error.contains(word),
            "{arguments:?}: no {word:?} in {error}"
        );
    }
    assert_eq!(said(&output.stdout), "", "{arguments:?}");
}

#[test]
fn reports_a_cause_once() {
    let output = run(FERROVIA, &["--config=/nonexistent/config.yaml"]);
    let error = said(&output.stderr);
    assert_eq!(error.matches("No such file").count(), 1, "{error}");
}

#[test]
fn its_name_decides_what_it_is() {
    let folder = Folder::new();
    let kube_proxy = folder.path().join("kube-proxy");
    symlink(FERROVIA, &kube_proxy).expect("a link can be made");

    let version = run(&kube_proxy, &["--version"]);
    assert_eq!(said(&version.stdout), "Kubernetes v1.36.4\n");
    assert_eq!(version.status.code(), Some(0));
    let version = said(&run(FERROVIA, &["--version"]).stdout);
    assert!(
        version.starts_with("ferrovia ") && version.ends_with(" (kube-proxy v1.36.4)\n"),
        "{version}"
    );
    let raw = said(&run(FERROVIA, &["--version=raw"]).stdout);
    assert!(raw.contains("v1.36.4") && raw.contains("linux"), "{raw}");

    // A kube-proxy has no commands.
    let plan = run(&kube_proxy, &["plan"]);
    assert_eq!(plan.status.code(), Some(1));
    assert!(said(&plan.stderr).contains("unknown command \"plan\" for \"kube-proxy\""));
    let help = said(&run(&kube_proxy, &["--help"]).stdout);
    assert!(
        help.contains("Usage: kube-proxy [FLAGS]") && !help.contains("Commands"),
        "{help}"
    );
}

#[test]
fn what_cannot_be_read_is_one_clear_error() {
    refuses(
        &["--nonsense"],
        &["Error: unknown flag: --nonsense", "ferrovia --help"],
    );
    refuses(&["run", "--nonsense"], &["Error: unknown flag: --nonsense"]);
    refuses(
        &["paln"],
        &[
            "Error: unknown command \"paln\" for \"ferrovia\"",
            "plan, diff",
        ],
    );
    refuses(
        &["--once", "plan"],
        &["A command comes before its flags: ferrovia plan"],
    );
    refuses(
        &["--config=/does/not/exist"],
        &["/does/not/exist", "No such file"],
    );
    refuses(&["--config=/"], &["configuration file /", "directory"]);
    refuses(
        &["--proxy-mode=fast"],
        &["mode: Unsupported value: \"fast\""],
    );
    refuses(
        &["--cluster-cidr=nonsense"],
        &["clusterCIDR[0]: Invalid value: \"nonsense\""],
    );
}

#[test]
fn reports_a_deprecated_flag_at_once() {
    let output = run(FERROVIA, &["--metrics-port=0", "--version"]);
    let error = said(&output.stderr);
    assert_eq!(
        error,
        "Flag --metrics-port has been deprecated; use --metrics-bind-address instead\n"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_configuration_can_be_written_and_read_back() {
    let folder = Folder::new();
    let file = folder.write(
        "in.yaml",
        &format!("{HEADER}mode: nftables\nextra: 1\niptables: {{ syncPeriod: 5s }}\n"),
    );
    let (first, second) = (folder.path().join("1.yaml"), folder.path().join("2.yaml"));
    let write = |from: &Path, to: &Path| {
        let output = run(
            FERROVIA,
            &[
                &format!("--config={}", from.display()),
                &format!("--write_config_to={}", to.display()),
            ],
        );
        assert_eq!(output.status.code(), Some(0), "{}", said(&output.stderr));
        (
            std::fs::read_to_string(to).expect("it was written"),
            said(&output.stderr),
        )
    };
    let (text, log) = write(&file, &first);
    assert!(
        log.contains("read leniently") && log.contains("extra"),
        "{log}"
    );
    assert!(
        text.contains("mode: nftables")
            && text.contains("- primary")
            && !text.contains("5s\n  min"),
        "{text}"
    );
    let (again, log) = write(&first, &second);
    assert_eq!(text, again);
    assert!(!log.contains("leniently"), "{log}");
}

#[test]
fn nothing_is_written_of_an_invalid_configuration() {
    let folder = Folder::new();
    let path = folder.path().join("out.yaml");
    refuses(
        &[
            "--oom-score-adj=2000",
            &format!("--write-config-to={}", path.display()),
        ],
        &["oomScoreAdj"],
    );
    assert!(!path.exists());
    refuses(
        &["--write-config-to=/does/not/exist/f"],
        &["/does/not/exist/f"],
    );
}

#[test]
fn help_names_every_flag_within_the_width_of_a_page() {
    let help = said(&run(FERROVIA, &["--help"]).stdout);
    for flag in ferrovia::config::flags::table::flags() {
        assert!(
            help.contains(&format!("--{}", flag.name)),
            "--{}",
            flag.name
        );
    }
    let widest = help.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?}");
    assert_eq!(said(&run(FERROVIA, &["help"]).stdout), help);
    assert_eq!(said(&run(FERROVIA, &["run", "-h"]).stdout), help);
    let plan = said(&run(FERROVIA, &["help", "plan"]).stdout);
    assert!(plan.contains("--local-address"), "{plan}");
}
