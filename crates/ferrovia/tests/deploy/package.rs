//! The archive, what container images are made of, and the Debian package: built from the binary under test, opened and used.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::support::{FERROVIA, Folder, path, read, run, succeed};

/// The binary under test without what debuggers want, to save time packing it.
fn small_binary(folder: &Path) -> PathBuf {
    let binary = folder.join("ferrovia");
    succeed(Command::new("strip").args([FERROVIA, "-o"]).arg(&binary));
    binary
}

/// Runs a script that packs; answers with the folder it packed into, and the file it names.
fn pack(script: &str, folder: &Path) -> (PathBuf, PathBuf) {
    let dist = folder.join("dist");
    let said = succeed(
        Command::new(path("scripts").join(script))
            .env("DIST", &dist)
            .env("COMPRESSION", "1")
            .env("FERROVIA_BINARY", small_binary(folder)),
    );
    (dist, PathBuf::from(said.trim()))
}

fn names(command: &mut Command) -> Vec<String> {
    succeed(command).lines().map(str::to_owned).collect()
}

#[test]
fn the_archive_holds_all_that_is_needed() {
    let folder = Folder::new();
    let (dist, archive) = pack("dist", folder.path());
    let stem = format!(
        "ferrovia-{}-linux-{}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    assert_eq!(archive, dist.join(format!("{stem}.tar.gz")));
    let listed = names(Command::new("tar").arg("tzf").arg(&archive));
    for wanted in [
        "bin/ferrovia",
        "man/ferrovia.8",
        "man/ferrovia-trace.8",
        "completions/ferrovia.bash",
        "completions/ferrovia.zsh",
        "completions/ferrovia.fish",
        "systemd/ferrovia.service",
        "systemd/config.yaml",
        "ferrovia.cdx.json",
        "LICENSE",
        "README.md",
    ] {
        let wanted = format!("{stem}/{wanted}");
        assert!(listed.contains(&wanted), "no {wanted} in {listed:#?}");
    }
    succeed(
        Command::new("sha256sum")
            .args(["--check", "--quiet", "SHA256SUMS"])
            .current_dir(&dist),
    );
    succeed(
        Command::new("tar")
            .arg("xzf")
            .arg(&archive)
            .current_dir(folder.path()),
    );
    let unpacked = folder.path().join(&stem);
    succeed(Command::new(unpacked.join("bin/ferrovia")).arg("--version"));
    check_pages(&unpacked.join("man"));
    check_bash_completions(&unpacked.join("completions/ferrovia.bash"));
    check_bill(&unpacked.join("ferrovia.cdx.json"));
    check_recipes(&dist.join("container"));
}

/// The formatter has nothing to say about them.
fn check_pages(folder: &Path) {
    for page in fs::read_dir(folder).unwrap() {
        let page = page.unwrap().path();
        let output = run(Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-z"])
            .arg(&page));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && said.is_empty(),
            "{}: {said}",
            page.display()
        );
    }
}

/// A shell that has loaded them completes a flag of the daemon.
fn check_bash_completions(file: &Path) {
    let ask = "source \"$1\"; COMP_WORDS=(ferrovia run --cluster-c); COMP_CWORD=2; \
               _ferrovia ferrovia --cluster-c run; echo \"${COMPREPLY[@]}\"";
    let said = succeed(Command::new("bash").args(["-c", ask, "bash"]).arg(file));
    assert_eq!(said, "--cluster-cidr\n");
}

/// Every crate of the binary, each with a licence and, unless it is ours, a checksum.
fn check_bill(file: &Path) {
    let bill: Value = serde_json::from_str(&read(file)).unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let components = bill["components"].as_array().unwrap();
    assert!(components.len() > 50, "{}", components.len());
    for component in components {
        let name = component["name"].as_str().unwrap();
        assert!(component["licenses"][0]["expression"].is_string(), "{name}");
        let is_ours = name.starts_with("ferrovia");
        assert_eq!(component["hashes"].is_null(), is_ours, "{name}");
        assert_ne!(name, "proptest", "a dependency of the tests");
    }
    let names: Vec<_> = components.iter().map(|it| &it["name"]).collect();
    for wanted in ["ferrovia-core", "tokio", "rustls", "k8s-openapi"] {
        assert!(names.contains(&&Value::from(wanted)), "no {wanted}");
    }
}

/// What the recipes copy is there, and holds the programs that pods start.
fn check_recipes(context: &Path) {
    for recipe in ["Containerfile", "Containerfile.iptables"] {
        let recipe = read(&path("deploy/container").join(recipe));
        let lines = || {
            recipe
                .lines()
                .map(|line| line.split(' ').collect::<Vec<_>>())
        };
        let copied: Vec<_> = lines().filter(|words| words[0] == "COPY").collect();
        assert_eq!(copied, [["COPY", "rootfs/", "/"]]);
        let root = context.join("rootfs");
        let entry = recipe
            .lines()
            .find_map(|line| line.strip_prefix("ENTRYPOINT "));
        let entry: Vec<String> = serde_json::from_str(entry.unwrap()).unwrap();
        for program in entry
            .iter()
            .map(String::as_str)
            .chain(["/usr/local/bin/kube-proxy"])
        {
            let program = root.join(program.trim_start_matches('/'));
            let mode = fs::metadata(&program).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o755, "{}", program.display());
            succeed(Command::new(program).arg("--version"));
        }
    }
}

#[test]
fn the_debian_package_installs_runs_and_goes() {
    let folder = Folder::new();
    let (_, package) = pack("build-deb", folder.path());
    let listed = succeed(Command::new("dpkg-deb").arg("--contents").arg(&package));
    for line in listed.lines() {
        assert!(line.contains(" root/root "), "{line}");
    }

    let root = folder.path().join("root");
    for name in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(name)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    // Not the machine's own packages, and no script of ours sees the machine.
    let dpkg = || {
        let mut command = Command::new("dpkg");
        command
            .arg(format!("--root={}", root.display()))
            .arg("--force-script-chrootless")
            .arg("--log=/dev/null");
        command
    };
    succeed(dpkg().arg("--install").arg(&package));

    let binary = root.join("usr/bin/ferrovia");
    let version = succeed(Command::new(&binary).arg("--version"));
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    check_standalone(&binary, &root.join("etc/ferrovia/config.yaml"));
    for file in [
        "usr/lib/systemd/system/ferrovia.service",
        "usr/share/man/man8/ferrovia.8.gz",
        "usr/share/bash-completion/completions/ferrovia",
        "usr/share/zsh/vendor-completions/_ferrovia",
        "usr/share/fish/vendor_completions.d/ferrovia.fish",
        "usr/share/doc/ferrovia/copyright",
        "usr/share/doc/ferrovia/configuration.md",
        "usr/share/doc/ferrovia/manifests.md",
        "etc/ferrovia/manifests",
    ] {
        assert!(root.join(file).exists(), "no {file} in:\n{listed}");
    }
    // Nothing is enabled by surprise.
    assert!(!root.join("etc/systemd").exists());

    succeed(dpkg().args(["--remove", "ferrovia"]));
    assert!(!binary.exists());
    assert!(
        root.join("etc/ferrovia/config.yaml").exists(),
        "it is the administrator's"
    );
    succeed(dpkg().args(["--purge", "ferrovia"]));
    assert!(!root.join("etc/ferrovia").exists());
}

/// The configuration that is installed is complete, and nothing is said of it.
fn check_standalone(binary: &Path, config: &Path) {
    let output = run(Command::new(binary)
        .arg("--config")
        .arg(config)
        .arg("--write-config-to=/dev/null"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let warnings: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with(['W', 'E']))
        .collect();
    assert_eq!(warnings, Vec::<&str>::new());
}
