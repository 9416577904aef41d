//! What belongs to others is left alone, also where it is in the way. And a kernel without IPVS.

use ferrovia_lab::Pod;
use ferrovia_lab::uml::suite::Test;

use crate::stage::{Manifest, Stage};
use crate::support::{wait, web};

pub(crate) const TESTS: [Test; 4] = [
    (
        "others: cleanup leaves them alone",
        cleanup_leaves_others_alone,
    ),
    ("others: a device with our name", a_device_with_our_name),
    (
        "others: an address of the node's own",
        an_address_of_the_nodes_own,
    ),
    ("others: no IPVS", no_ipvs),
];

/// Virtual servers of somebody: at an address that is no service's, and at one of the node's with a port that is no node port.
const SERVERS: &str = "-A -t 192.0.2.200:80 -s wlc
-a -t 192.0.2.200:80 -r 10.244.1.10:8080 -m -w 5
-A -t 198.51.100.10:81 -s rr
-A -u 198.51.100.10:30080 -s rr
";
const SETS: &str =
    "create MINE hash:ip family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x5a5a5a5a
add MINE 192.0.2.1
";
const ADDRESSES: [(&str, &str); 2] = [("mine0", "10.99.0.1/32"), ("eth1", "10.99.0.2/32")];

fn cleanup_leaves_others_alone() {
    let stage = Stage::new();
    let node = &stage.node;
    node.on_node("ip", &["link", "add", "mine0", "type", "dummy"]);
    for (device, address) in ADDRESSES {
        node.on_node("ip", &["addr", "add", address, "dev", device]);
    }
    node.feed("ipvsadm", &["-R"], SERVERS);
    node.feed("ipset", &["restore"], SETS);
    node.on_node(
        "iptables-legacy",
        &[
            "-A",
            "INPUT",
            "-m",
            "set",
            "--match-set",
            "MINE",
            "src",
            "-j",
            "DROP",
        ],
    );
    let links = || node.on_node("ip", &["-o", "addr", "show"]);
    let state = || {
        let rules = node.on_node("iptables-legacy-save", &[]);
        let rules = rules
            .lines()
            .filter(|line| line.starts_with("-A") && !is_kubelets(line));
        let rules: Vec<_> = rules.map(str::to_owned).collect();
        let sets = node.on_node("ipset", &["save"]);
        (stage.servers(), sets, rules)
    };
    let before = (state(), links());

    node.write("web.yaml", &web(&["2.10"]));
    stage.start("ipvs");
    for line in SERVERS.lines() {
        assert!(
            stage.servers().contains(line),
            "{line}\n{}",
            stage.servers()
        );
    }
    for (_, address) in ADDRESSES {
        assert!(links().contains(address), "{}", links());
    }
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    node.stop(libc::SIGTERM);

    let cleanup = node
        .ferrovia()
        .args(["cleanup", "--kube-proxy"])
        .output()
        .unwrap();
    assert!(cleanup.status.success(), "{cleanup:?}");
    let said = String::from_utf8_lossy(&cleanup.stdout);
    assert!(
        said.contains("virtual servers, the device kube-ipvs0"),
        "{said}"
    );
    assert_eq!((state(), links()), before);
}

/// A rule of the chains that we share with a kubelet, which stay.
fn is_kubelets(rule: &str) -> bool {
    rule.contains("KUBE-FIREWALL") || rule.contains("KUBE-MARK-DROP")
}

fn a_device_with_our_name() {
    let stage = Stage::new();
    let node = &stage.node;
    node.on_node("ip", &["link", "add", "kube-ipvs0", "type", "bridge"]);
    node.write("web.yaml", &web(&["2.10"]));
    // To whoever cleans up it is nothing of ours.
    let cleanup = node.ferrovia().args(["cleanup", "--kube-proxy"]).output();
    let cleanup = cleanup.unwrap();
    assert!(cleanup.status.success(), "{cleanup:?}");
    let complaint = "the device kube-ipvs0 is of kind bridge, not dummy";
    let once = stage.once();
    let said = String::from_utf8_lossy(&once.stderr);
    assert_eq!(once.status.code(), Some(1), "{said}");
    assert!(said.contains(complaint), "{said}");

    node.spawn(stage.command("ipvs"));
    node.wait_for_log(complaint);
    assert!(node.is_running());
    node.on_node("ip", &["link", "del", "kube-ipvs0"]);
    node.wait_until_ready();
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
}

/// It gets its virtual server, and is neither put on our device nor taken from the node's.
fn an_address_of_the_nodes_own() {
    let stage = Stage::new();
    let node = &stage.node;
    let manifest = Manifest {
        spec: "  externalIPs: [198.51.100.11]\n",
        endpoints: &[(Pod::X, 1)],
        ..Manifest::default()
    };
    manifest.write(&stage);
    stage.start("ipvs");
    node.expect("outside > 198.51.100.11:80 => 10.244.2.10:8080 masq");
    let on_device = || node.on_node("ip", &["-o", "addr", "show", "dev", "kube-ipvs0"]);
    assert!(on_device().contains("10.96.0.10/32"), "{}", on_device());
    assert!(!on_device().contains("198.51.100.11"), "{}", on_device());

    let addresses = || {
        let all = node.on_node("ip", &["-o", "addr", "show", "to", "198.51.100.11"]);
        all.lines().count()
    };
    assert_eq!(addresses(), 1);
    node.remove("web.yaml");
    wait(|| match stage.servers() {
        servers if servers.contains("198.51.100.11") => Err(servers),
        _ => Ok(()),
    });
    assert_eq!(addresses(), 1);
}

/// Takes IPVS out of the guest's kernel, for good.
fn no_ipvs() {
    let stage = Stage::new();
    // Namespaces of earlier tests are on their way out, with what is in them.
    wait(|| {
        remove_modules();
        match modules() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("still there: {left:?}")),
        }
    });
    stage.node.write("web.yaml", &web(&["2.10"]));
    let once = stage.once();
    let said = String::from_utf8_lossy(&once.stderr);
    assert_eq!(once.status.code(), Some(1), "{said}");
    assert!(said.contains("no IPVS"), "{said}");
}

/// The modules of IPVS, those that others depend on last.
fn modules() -> Vec<String> {
    let loaded = std::fs::read_to_string("/proc/modules").unwrap();
    let names = loaded.lines().filter_map(|line| line.split(' ').next());
    let mut names: Vec<_> = names
        .filter(|name| name.starts_with("ip_vs") || *name == "xt_ipvs")
        .map(str::to_owned)
        .collect();
    names.sort_by_key(|name| name == "ip_vs");
    names
}

fn remove_modules() {
    for module in modules() {
        // One that is in use is tried again.
        let _ = std::process::Command::new("rmmod").arg(module).output();
    }
}
