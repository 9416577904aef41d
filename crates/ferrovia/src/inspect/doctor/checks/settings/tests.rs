use ferrovia_host::survey::flows::ConntrackTotals;
use ferrovia_host::survey::links::Link;

use super::super::super::facts::Conntrack;
use super::super::tests::found;
use super::*;

fn with(settings: &[(&'static str, &str)]) -> Facts {
    Facts {
        families: Family::ALL.to_vec(),
        settings: settings
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect(),
        ..Facts::default()
    }
}

fn link(name: &str, kind: &str, has_master: bool) -> Link {
    Link {
        name: name.into(),
        kind: kind.into(),
        mtu: 1500,
        is_up: true,
        is_loopback: false,
        has_master,
    }
}

fn severity(facts: &Facts, name: &str) -> Option<Severity> {
    found(&check(facts), name).map(|finding| finding.severity)
}

#[test]
fn forwarding_has_to_be_on() {
    let name = "settings/ip-forward";
    let off = with(&[("net/ipv4/ip_forward", "0")]);
    assert_eq!(severity(&off, name), Some(Severity::Problem));
    let on = with(&[("net/ipv4/ip_forward", "1")]);
    assert_eq!(severity(&on, name), Some(Severity::Ok));
    assert_eq!(severity(&with(&[]), name), None);
}

#[test]
fn ipv6_forwarding_matters_where_ipv6_is_used() {
    let name = "settings/ipv6-forwarding";
    let mut facts = with(&[("net/ipv6/conf/all/forwarding", "0")]);
    assert_eq!(severity(&facts, name), Some(Severity::Note));
    facts.uses_ipv6 = true;
    assert_eq!(severity(&facts, name), Some(Severity::Warning));
    facts.families = vec![Family::V4];
    assert_eq!(severity(&facts, name), None);
}

#[test]
fn routers_are_not_heard_by_a_node_that_forwards() {
    let name = "settings/accept-ra";
    let mut facts = with(&[("net/ipv6/conf/all/forwarding", "1")]);
    facts.uses_ipv6 = true;
    facts.accept_ra = vec![("eth0".into(), "2".into())];
    assert_eq!(severity(&facts, name), None);
    facts.accept_ra = vec![("eth0".into(), "1".into())];
    assert_eq!(severity(&facts, name), Some(Severity::Note));
    facts.uses_ipv6 = false;
    assert_eq!(severity(&facts, name), None);
}

#[test]
fn strict_reverse_paths_hurt_where_there_are_two_ways() {
    let name = "settings/rp-filter";
    let mut facts = with(&[]);
    facts.rp_filter = vec![("all".into(), "1".into()), ("eth0".into(), "0".into())];
    facts.uplinks = ["eth0".to_owned()].into();
    assert_eq!(severity(&facts, name), None);
    facts.uplinks.insert("eth1".into());
    assert_eq!(severity(&facts, name), Some(Severity::Warning));
    // The greater of the two counts: loose for all beats strict for one.
    facts.rp_filter = vec![("all".into(), "2".into()), ("eth0".into(), "1".into())];
    assert_eq!(severity(&facts, name), None);
}

#[test]
fn routed_loopback_is_left_over_unless_in_iptables_mode() {
    let name = "settings/route-localnet";
    let mut facts = with(&[]);
    assert_eq!(severity(&facts, name), None);
    facts.localnet_routed = vec!["all".into()];
    assert_eq!(severity(&facts, name), Some(Severity::Warning));
    facts.mode = crate::mode::find("iptables");
    assert_eq!(severity(&facts, name), Some(Severity::Note));
}

#[test]
fn routed_loopback_on_the_bridge_of_the_plugin_portmap_is_explained() {
    let name = "settings/route-localnet";
    let mut facts = with(&[]);
    facts.localnet_routed = vec!["cni0".into()];
    assert_eq!(severity(&facts, name), Some(Severity::Warning));
    facts.has_portmap = true;
    assert_eq!(severity(&facts, name), Some(Severity::Note));
    facts.localnet_routed.push("all".into());
    assert_eq!(severity(&facts, name), Some(Severity::Warning));
}

#[test]
fn pods_on_a_bridge_need_its_packets_to_meet_the_rules() {
    let name = "settings/bridge-nf-call-iptables";
    let mut facts = with(&[("net/bridge/bridge-nf-call-iptables", "0")]);
    facts.links = vec![link("cbr0", "bridge", false)];
    assert_eq!(severity(&facts, name), None, "a bridge without pods");
    facts.links.push(link("veth1", "veth", true));
    assert_eq!(severity(&facts, name), Some(Severity::Warning));
    facts.settings.clear();
    assert_eq!(severity(&facts, name), Some(Severity::Warning));
    facts.settings = [("net/bridge/bridge-nf-call-iptables", "1".to_owned())].into();
    assert_eq!(severity(&facts, name), Some(Severity::Ok));
}

#[test]
fn addresses_of_services_are_not_for_arp() {
    let name = "settings/arp";
    let mut facts = with(&[
        ("net/ipv4/conf/all/arp_ignore", "0"),
        ("net/ipv4/conf/all/arp_announce", "0"),
    ]);
    assert_eq!(severity(&facts, name), None);
    facts.links = vec![link(SERVICE_DEVICE, "dummy", false)];
    assert_eq!(severity(&facts, name), Some(Severity::Warning));
    facts.settings.extend([
        ("net/ipv4/conf/all/arp_ignore", "1".to_owned()),
        ("net/ipv4/conf/all/arp_announce", "2".to_owned()),
    ]);
    assert_eq!(severity(&facts, name), None);
}

#[test]
fn many_misfits_are_worth_a_word_unless_conntrack_is_liberal() {
    let name = "settings/tcp-be-liberal";
    let liberal = "net/netfilter/nf_conntrack_tcp_be_liberal";
    let mut facts = with(&[(liberal, "0")]);
    facts.conntrack = Some(Conntrack {
        used: 1,
        max: 10,
        totals: Some(ConntrackTotals {
            invalid: MANY_INVALID,
            ..ConntrackTotals::default()
        }),
    });
    assert_eq!(severity(&facts, name), Some(Severity::Note));
    facts.settings.insert(liberal, "1".into());
    assert_eq!(severity(&facts, name), None);
}

#[test]
fn helpers_are_not_assigned_by_themselves() {
    let name = "settings/conntrack-helper";
    let setting = "net/netfilter/nf_conntrack_helper";
    assert_eq!(
        severity(&with(&[(setting, "1")]), name),
        Some(Severity::Warning)
    );
    assert_eq!(severity(&with(&[(setting, "0")]), name), None);
}
