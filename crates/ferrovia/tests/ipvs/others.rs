//! What belongs to others is left alone, also where it is in the way. And kernels without nf_tables, and without IPVS.

use std::fs;

use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::uml::suite::Test;
use ferrovia_lab::waiting::wait;
use ferrovia_lab::{Folder, Pod};

use crate::stage::{Manifest, Stage};

pub(crate) const TESTS: [Test; 5] = [
    (
        "others: cleanup leaves them alone",
        cleanup_leaves_others_alone,
    ),
    ("others: a device with our name", a_device_with_our_name),
    (
        "others: an address of the node's own",
        an_address_of_the_nodes_own,
    ),
    ("others: no nf_tables", no_nf_tables),
    ("others: no IPVS", no_ipvs),
];

/// Foreign virtual servers: at an address of no Service, and at a node address with a port that is not a node port.
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
    // `ferrovia cleanup` does not consider it ours.
    let cleanup = node.ferrovia().args(["cleanup", "--kube-proxy"]).output();
    let cleanup = cleanup.unwrap();
    assert!(cleanup.status.success(), "{cleanup:?}");
    let complaint = "cannot use device kube-ipvs0: its kind is bridge, not dummy";
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

/// That there are no tables to remove is no failure.
fn no_nf_tables() {
    const LOADER: &str = "/proc/sys/kernel/modprobe";
    let stage = Stage::new();
    let folder = Folder::new();
    let loader = fs::read_to_string(LOADER).unwrap();
    let refusal = "case \"$*\" in *nfnetlink-subsys-10*) exit 1 ;; esac";
    let script = format!("{refusal}\nexec {} \"$@\"", loader.trim());
    let refusing = folder.write_program("modprobe", &script);
    fs::write(LOADER, refusing.to_str().unwrap()).unwrap();
    remove_modules(|name| name.starts_with("nft_") || name == "nf_tables");

    let node = &stage.node;
    node.write("web.yaml", &web(&["2.10"]));
    stage.start("iptables");
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    let log = node.log();
    assert!(!log.contains("another proxy left"), "{log}");
    node.stop(libc::SIGTERM);
    let cleanup = node.ferrovia().arg("cleanup").output().unwrap();
    assert!(cleanup.status.success(), "{cleanup:?}");
    fs::write(LOADER, loader).unwrap();
}

/// Takes IPVS out of the guest's kernel, for good.
fn no_ipvs() {
    let stage = Stage::new();
    remove_modules(|name| name.starts_with("ip_vs") || name == "xt_ipvs");
    stage.node.write("web.yaml", &web(&["2.10"]));
    let once = stage.once();
    let said = String::from_utf8_lossy(&once.stderr);
    assert_eq!(once.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot use IPVS"), "{said}");
}

/// Takes modules out of the guest's kernel.
fn remove_modules(is_meant: fn(&str) -> bool) {
    // Namespaces of earlier tests are on their way out, with what is in them; and some modules depend on others.
    wait(|| {
        let left = modules(is_meant);
        for module in &left {
            // One that is in use is tried again.
            let _ = std::process::Command::new("rmmod").arg(module).output();
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("still there: {left:?}")),
        }
    });
}

/// The modules of some kind that are loaded.
fn modules(is_meant: fn(&str) -> bool) -> Vec<String> {
    let loaded = fs::read_to_string("/proc/modules").unwrap();
    let names = loaded.lines().filter_map(|line| line.split(' ').next());
    let meant = names.filter(|name| is_meant(name));
    meant.map(str::to_owned).collect()
}
