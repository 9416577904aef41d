//! What is counted, as Prometheus reads it.

use std::fs::File;
use std::net::SocketAddr;

use ferrovia_host::iptables::Backend;
use ferrovia_lab::Role;
use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::plain_http::get;
use ferrovia_lab::waiting::wait;

use super::{BACKENDS, Machine};

const ADDRESS: &str = "127.0.0.1:10249";

impl Machine {
    /// Starts a daemon that serves metrics and writes nothing but changes.
    fn start_counting(&self) {
        let mut command = self.without_checks();
        command.arg(format!("--metrics-bind-address={ADDRESS}"));
        self.run(command);
    }

    /// The value of a series, if it is there. The name is with its labels, as printed.
    fn metric(&self, series: &str) -> Option<f64> {
        let address: SocketAddr = ADDRESS.parse().expect("an address and port");
        let _inside = (self.node.world.enter(Role::Node)).expect("the node is there");
        let page = get(address, "/metrics").body;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse().expect("a value"))
    }

    fn wait_for_metric(&self, series: &str, is_right: impl Fn(f64) -> bool) {
        wait(|| match self.metric(series) {
            Some(value) if is_right(value) => Ok(()),
            other => Err(format!("{series} is {other:?}; log:\n{}", self.node.log())),
        });
    }

    /// How many rules a table of IPv4 has.
    fn count_rules(&self, table: &str) -> f64 {
        let save = self.tool("-save", &["-t", table]);
        let rules = save.lines().filter(|line| line.starts_with("-A ")).count();
        rules as f64
    }
}

/// The series of a table of IPv4.
fn of_table(name: &str, table: &str) -> String {
    format!("kubeproxy_sync_proxy_rules_iptables_{name}{{ip_family=\"IPv4\",table=\"{table}\"}}")
}

#[test]
fn rules_are_counted_table_by_table() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        let node = &machine.node;
        node.write("web.yaml", &web(&["1.10", "2.10"]));
        machine.start_counting();
        for table in ["filter", "nat"] {
            let rules = machine.count_rules(table);
            machine.wait_for_metric(&of_table("total", table), |n| n == rules);
            machine.wait_for_metric(&of_table("last", table), |n| n == rules);
        }
        let before = machine.count_rules("nat");
        node.write("more.yaml", &service("more", 11, 30081, &["2.11"]));
        node.write("none.yaml", &service("none", 12, 30082, &[]));
        node.expect_soon(
            "pod-c > 10.96.0.11:80 => 10.244.2.11:8080\npod-c > 10.96.0.12:80 => refused",
        );
        for table in ["filter", "nat"] {
            let rules = machine.count_rules(table);
            machine.wait_for_metric(&of_table("total", table), |n| n == rules);
        }
        machine.wait_for_metric(&of_table("last", "nat"), |n| n < before);
        node.remove("more.yaml");
        node.remove("none.yaml");
        machine.wait_for_metric(&of_table("total", "nat"), |n| n == before);
    }
}

#[test]
fn failed_writes_are_counted() {
    let machine = Machine::new(Backend::Nft);
    let node = &machine.node;
    node.write("web.yaml", &web(&["2.10"]));
    node.write("more.yaml", &service("more", 11, 30081, &["2.11"]));
    machine.start_counting();
    let failures = |kind: &str| {
        format!("kubeproxy_sync_proxy_rules_iptables_{kind}_failures_total{{ip_family=\"IPv4\"}}")
    };
    assert_eq!(machine.metric(&failures("restore")), None);
    // What the next change wants to remove is not there any more.
    machine.tool("", &["-t", "nat", "-F", "KUBE-SERVICES"]);
    node.remove("more.yaml");
    machine.wait_for_metric(&failures("restore"), |n| n == 1.0);
    machine.wait_for_metric(&failures("partial_restore"), |n| n == 1.0);
    machine.wait_for_metric("ferrovia_kernel_errors_total{ip_family=\"IPv4\"}", |n| {
        n == 1.0
    });
    // And all is mended at once.
    node.expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    node.wait_for_log("(line: -D KUBE-SERVICES");
}

#[test]
fn the_lock_of_the_legacy_tools_is_counted() {
    let of = |what: &str| format!("ferrovia_iptables_lock_{what}_total{{ip_family=\"IPv4\"}}");
    let machine = Machine::new(Backend::Legacy);
    let node = &machine.node;
    node.write("web.yaml", &web(&["1.10"]));
    machine.start_counting();
    machine.wait_for_metric(&of("taken"), |n| n == 1.0);
    machine.wait_for_metric(&of("held_seconds"), |seconds| seconds > 0.0);
    let lock = File::create(machine.lock_file()).expect("the folder is ours");
    lock.lock().expect("nobody else holds it for long");
    node.write("web.yaml", &web(&["2.10"]));
    node.wait_for_log("Waiting for the xtables lock");
    lock.unlock().expect("we hold it");
    node.expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    machine.wait_for_metric(&of("taken"), |n| n == 2.0);
    // It is logged after two seconds.
    machine.wait_for_metric(&of("waited_seconds"), |seconds| seconds >= 2.0);

    let machine = Machine::new(Backend::Nft);
    machine.start_counting();
    assert_eq!(machine.metric(&of("taken")), None);
}

#[test]
fn packets_are_counted_by_the_kernel() {
    const INVALID: &str = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total";
    const LOOPBACK: &str = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total";
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        machine.node.write("web.yaml", &web(&["2.10"]));
        machine.start_counting();
        for series in [INVALID, LOOPBACK] {
            assert_eq!(machine.metric(series), Some(0.0), "{series}");
        }
        machine
            .node
            .expect("node > 127.0.0.1:30080 => 10.244.2.10:8080 masq");
        machine.wait_for_metric(LOOPBACK, |packets| packets >= 1.0);
        assert_eq!(machine.metric(INVALID), Some(0.0));
    }
}
