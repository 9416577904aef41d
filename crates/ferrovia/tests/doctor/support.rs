//! A node that is looked at.

use std::process::{Command, Output};

use ferrovia_lab::{Folder, Role, Spec, World};
use serde_json::Value;

/// A Service with a node port, as a manifest.
pub(crate) const WEB: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80, nodePort: 30080}]
";

/// A lab whose node is the patient, and a folder for its manifests.
pub(crate) struct Patient {
    pub(crate) world: World,
    pub(crate) folder: Folder,
}

impl Patient {
    /// A healthy one.
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        std::fs::create_dir_all(folder.join("manifests")).expect("a temporary folder can be made");
        let world = World::new(Spec::default()).expect("the lab can be built");
        Self { world, folder }
    }

    /// Adds a manifest; gives the folder it is in.
    pub(crate) fn with_manifest(&self, text: &str) -> String {
        let folder = self.folder.join("manifests");
        std::fs::write(folder.join("objects.yaml"), text).expect("the folder is writable");
        folder.display().to_string()
    }

    /// A command on the node. The lock of the legacy tools is a file of the machine's, so they get one of their own.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.world.exec(Role::Node, program);
        command.env("XTABLES_LOCKFILE", self.folder.join("xtables.lock"));
        command
    }

    /// Runs a shell script on the node, which must succeed.
    pub(crate) fn run(&self, script: &str) -> String {
        let output = self.command("sh").args(["-euc", script]).output();
        let output = output.expect("a shell can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `ferrovia` with these arguments, on the node.
    pub(crate) fn ferrovia(&self, arguments: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_ferrovia"))
            .args(arguments)
            .output()
            .expect("ferrovia can be started")
    }

    /// What the doctor says without the self-test, and the exit code.
    pub(crate) fn examine(&self, arguments: &[&str]) -> Report {
        let fixed = ["doctor", "-o", "json", "--no-self-test"];
        Report::of(&self.ferrovia(&[&fixed[..], arguments].concat()))
    }
}

/// What the doctor said.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) code: Option<i32>,
    pub(crate) json: Value,
}

impl Report {
    pub(crate) fn of(output: &Output) -> Self {
        let said = String::from_utf8_lossy(&output.stderr);
        let json = serde_json::from_slice(&output.stdout);
        Self {
            code: output.status.code(),
            json: json.unwrap_or_else(|error| panic!("{error}: {said}")),
        }
    }

    /// Severity and text of the finding of a check.
    pub(crate) fn finding(&self, check: &str) -> Option<(&str, &str)> {
        let findings = self.json["findings"].as_array()?;
        let finding = findings.iter().find(|finding| finding["check"] == check)?;
        Some((finding["severity"].as_str()?, finding["what"].as_str()?))
    }

    /// That finding must be there, be so bad, and name this.
    pub(crate) fn expect(&self, check: &str, severity: &str, named: &str) {
        let found = self.finding(check);
        let is_right = found.is_some_and(|(found, what)| found == severity && what.contains(named));
        assert!(is_right, "{check}: {found:?} in {:#}", self.json);
    }
}
