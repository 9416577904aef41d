//! With a stand-in for `netsh` that keeps addresses in files.

use std::fs;

use ferrovia_core::plan::userspace::windows::{after_closing, before_opening};
use ferrovia_lab::folder::Folder;
use ferrovia_lab::waiting::SOON;

use super::super::tests::plan;
use super::*;

const NAME: &str = "vEthernet (HNS Internal NIC)";

/// A stand-in for `netsh`, in a folder of its own.
pub(in crate::winuserspace) struct FakeNetsh {
    folder: Folder,
    program: PathBuf,
}

/// Notes what it is called with, and does it in the file `shown`. What is in the file `late` is shown from the third look on; addresses that
/// are in the file `refused` are refused in the manner of the real one: on standard output.
const HONEST: &str = r#"
cd "$(dirname "$0")" || exit 9
touch shown late looks refused
echo "$*" >> calls
address="${6#address=}"
refuse() { printf '\r\nThe parameter   is incorrect.\r\n\r\n'; exit 1; }
case "$3" in
show)
    echo look >> looks
    [ "$(wc -l < looks)" -ne 3 ] || cat late >> shown
    printf '\r\nConfiguration for interface "%s"\r\n    DHCP enabled:       No\r\n' "${5#*=}"
    while read -r ip; do
        case "$2" in
        ipv4) printf '    IP Address:         %s\r\n    Subnet Prefix:      %s/32 (mask 255.255.255.255)\r\n' "$ip" "$ip" ;;
        ipv6) printf 'Address %s Parameters\r\n------------\r\nDAD State          : Preferred\r\n' "$ip" ;;
        esac
    done < shown ;;
add)
    grep -qxF "$address" refused && refuse
    grep -qxF "$address" late || echo "$address" >> shown ;;
delete)
    grep -qxF "$address" refused && refuse
    grep -qxF "$address" shown || refuse
    grep -vxF "$address" shown > rest
    mv rest shown ;;
esac
exit 0
"#;

impl FakeNetsh {
    pub(in crate::winuserspace) fn honest() -> Self {
        Self::script(HONEST)
    }

    fn script(script: &str) -> Self {
        let folder = Folder::new();
        let program = folder.write_program("netsh", script);
        Self { folder, program }
    }

    /// One that does something of its own before what it is asked for.
    pub(in crate::winuserspace) fn after(script: &str) -> Self {
        Self::script(&format!("{script}\n{HONEST}"))
    }

    pub(in crate::winuserspace) fn interface(&self, family: Family) -> Interface {
        let netsh = Netsh {
            program: self.program.clone(),
            limits: Limits {
                time: SOON,
                bytes: 100_000,
            },
            patience: SOON,
            pause: Duration::from_millis(1),
        };
        Interface::with(netsh, NAME, family)
    }

    pub(in crate::winuserspace) fn write(&self, file: &str, text: &str) {
        self.folder.write(file, text);
    }

    pub(in crate::winuserspace) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// What it was called with, except for looking.
    fn changes(&self) -> Vec<String> {
        let mut calls = self.lines("calls");
        calls.retain(|call| !call.contains(" show "));
        calls
    }
}

fn ips(ips: &[&str]) -> Vec<IpAddr> {
    ips.iter().map(|ip| ip.parse().unwrap()).collect()
}

fn added(addresses: &[&str]) -> Vec<NetshChange> {
    before_opening(&plan(&ips(addresses), Vec::new(), &[]), NAME)
}

fn removed(addresses: &[&str]) -> Vec<NetshChange> {
    after_closing(&plan(&[], Vec::new(), &ips(addresses)), NAME)
}

#[test]
fn addresses_come_and_go() {
    let cases = [
        (Family::V4, ["10.96.0.10", "10.96.0.11"], "ipv4", "name"),
        (Family::V6, ["fd00::a", "fd00::b"], "ipv6", "interface"),
    ];
    for (family, [one, other], word, name) in cases {
        let netsh = FakeNetsh::honest();
        let mut interface = netsh.interface(family);
        assert_eq!(interface.addresses().unwrap(), ips(&[]));
        interface.add(&added(&[one, other])).unwrap();
        assert_eq!(interface.addresses().unwrap(), ips(&[one, other]));
        interface.remove(&removed(&[one])).unwrap();
        assert_eq!(interface.addresses().unwrap(), ips(&[other]));
        let call =
            |action, ip| format!("interface {word} {action} address {name}={NAME} address={ip}");
        assert_eq!(
            netsh.changes(),
            [call("add", one), call("add", other), call("delete", one)]
        );
    }
}

#[test]
fn nothing_is_run_for_nothing() {
    let netsh = FakeNetsh::honest();
    let mut interface = netsh.interface(Family::V4);
    interface.add(&[]).unwrap();
    interface.remove(&[]).unwrap();
    assert!(netsh.lines("calls").is_empty());
}

#[test]
fn existing_addresses_are_not_removed() {
    let netsh = FakeNetsh::honest();
    netsh.write("shown", "10.96.0.10\n");
    let mut interface = netsh.interface(Family::V4);
    interface.add(&added(&["10.96.0.10"])).unwrap();
    assert_eq!(interface.addresses().unwrap(), ips(&[]));
    interface.remove(&removed(&["10.96.0.10"])).unwrap();
    assert!(netsh.changes().is_empty());
}

#[test]
fn an_address_that_shows_late_is_waited_for() {
    let netsh = FakeNetsh::honest();
    netsh.write("late", "10.96.0.10\n");
    let mut interface = netsh.interface(Family::V4);
    interface.add(&added(&["10.96.0.10"])).unwrap();
    // One look before it was added, one in vain.
    assert_eq!(netsh.lines("looks").len(), 3);
    assert_eq!(interface.addresses().unwrap(), ips(&["10.96.0.10"]));
}

#[test]
fn an_address_that_never_shows_is_not_waited_for_for_ever() {
    // It adds nothing, and what it shows is no text at all.
    let netsh = FakeNetsh::script(r"printf 'IP: \377\000:\r\r IP:: 1.2.3\n'");
    let mut interface = netsh.interface(Family::V4);
    interface.netsh.patience = Duration::from_millis(20);
    interface.add(&added(&["10.96.0.10"])).unwrap();
    assert_eq!(interface.addresses().unwrap(), ips(&[]));
}

#[test]
fn refused_address_is_named_and_the_others_are_added() {
    let netsh = FakeNetsh::honest();
    netsh.write("refused", "10.96.0.10\n");
    let mut interface = netsh.interface(Family::V4);
    let error = interface
        .add(&added(&["10.96.0.10", "10.96.0.11"]))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot run `netsh interface ipv4 add address name=vEthernet (HNS Internal NIC) address=10.96.0.10` (exit status: 1): The parameter is incorrect.; check that the interface exists (INTERFACE_TO_ADD_SERVICE_IP names it) and that an administrator runs this"
    );
    assert_eq!(interface.addresses().unwrap(), ips(&["10.96.0.11"]));
}

#[test]
fn a_long_complaint_is_cut() {
    let netsh = FakeNetsh::script("head -c 50000 /dev/zero | tr '\\0' x; exit 1");
    let error = netsh.interface(Family::V4).addresses().unwrap_err();
    let Error::Refused { said, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(said, "x".repeat(MOST_SAID));
}

#[test]
fn removing_what_is_gone_is_no_failure_but_what_stays_is() {
    let netsh = FakeNetsh::honest();
    let mut interface = netsh.interface(Family::V4);
    let all = ["10.96.0.10", "10.96.0.11", "10.96.0.12"];
    interface.add(&added(&all)).unwrap();
    netsh.write("shown", "10.96.0.11\n10.96.0.12\n");
    netsh.write("refused", "10.96.0.11\n");
    let error = interface.remove(&removed(&all)).unwrap_err();
    assert!(
        error.to_string().contains("delete address") && error.to_string().contains("10.96.0.11"),
        "{error}"
    );
    assert_eq!(interface.addresses().unwrap(), ips(&["10.96.0.11"]));
    // It is still ours, and goes as soon as it can.
    netsh.write("refused", "");
    interface.remove(&removed(&["10.96.0.11"])).unwrap();
    assert_eq!(interface.addresses().unwrap(), ips(&[]));
}

#[test]
fn one_that_hangs_is_ended() {
    let netsh = FakeNetsh::script("exec sleep 1000");
    let mut interface = netsh.interface(Family::V4);
    interface.netsh.limits.time = Duration::from_millis(200);
    let error = interface.add(&added(&["10.96.0.10"])).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("show address name=vEthernet") && text.contains("did not exit within 200ms"),
        "{text}"
    );
}

#[test]
fn what_may_have_been_added_is_ours() {
    // It adds the address and then fails us.
    let netsh = FakeNetsh::after(
        r#"[ "$3" != add ] || { echo "${6#address=}" >> "$(dirname "$0")/shown"; exec yes; }"#,
    );
    let mut interface = netsh.interface(Family::V4);
    let error = interface.add(&added(&["10.96.0.10"])).unwrap_err();
    assert!(matches!(error, Error::Run { .. }), "{error}");
    assert_eq!(interface.addresses().unwrap(), ips(&["10.96.0.10"]));
}

#[test]
fn one_that_prints_without_end_is_ended() {
    let netsh = FakeNetsh::script("exec yes");
    let error = netsh.interface(Family::V4).addresses().unwrap_err();
    assert!(
        error.to_string().contains("more than 100000 bytes"),
        "{error}"
    );
}

#[test]
fn one_that_is_not_there_is_an_error() {
    let netsh = FakeNetsh::honest();
    let mut interface = netsh.interface(Family::V4);
    interface.netsh.program = netsh.folder.join("nothing");
    let error = interface.addresses().unwrap_err();
    assert!(error.to_string().contains("cannot run"), "{error}");
}
