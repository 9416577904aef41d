//! Rules of others, written with the tools that others use.

use super::support::Patient;

#[test]
fn docker_closes_forwarding_and_takes_ports() {
    let patient = Patient::new();
    patient.run(
        "iptables-nft -w 30 -P FORWARD DROP
         iptables-nft -w 30 -N DOCKER-USER
         iptables-nft -w 30 -A FORWARD -j DOCKER-USER
         iptables-nft -w 30 -t nat -N DOCKER
         iptables-nft -w 30 -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
         iptables-nft -w 30 -t nat -A DOCKER -p tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80",
    );
    let report = patient.examine(&[]);
    report.expect(
        "rules/forward",
        "warning",
        "chain FORWARD of ip filter (rules of Docker)",
    );
    report.expect("rules/translated", "note", "(rules of Docker)");
    assert_eq!(report.code, Some(1));
}

#[test]
fn firewalld_refuses_what_it_does_not_know() {
    let patient = Patient::new();
    patient.run(
        "nft -f - <<'END'
         table inet firewalld {
           chain filter_FORWARD {
             type filter hook forward priority filter + 10; policy accept;
             ct state { established, related } accept
             jump filter_FORWARD_POLICIES
             reject with icmpx admin-prohibited
           }
           chain filter_FORWARD_POLICIES { iifname eth7 accept; }
           chain raw_PREROUTING {
             type filter hook prerouting priority raw + 10; policy accept;
             meta nfproto ipv6 fib saddr . mark . iif oif missing drop
           }
         }
END",
    );
    let report = patient.examine(&[]);
    report.expect(
        "rules/forward",
        "warning",
        "chain filter_FORWARD of inet firewalld (rules of firewalld)",
    );
    report.expect("rules/early", "note", "raw_PREROUTING");
    report.expect("rules/firewall", "note", "firewalld");
}

#[test]
fn untracked_packets_and_early_translation_are_found_in_both_rulesets() {
    let patient = Patient::new();
    patient.run(
        "iptables-legacy -w 30 -t raw -A PREROUTING -p udp --dport 53 -j CT --notrack
         nft -f - <<'END'
         table ip mine {
           chain first { type nat hook prerouting priority -150; tcp dport 30080 dnat to 192.0.2.1; }
           chain untracked { type filter hook output priority raw; udp dport 53 notrack; }
         }
END",
    );
    let report = patient.examine(&[]);
    report.expect(
        "rules/untracked",
        "warning",
        "PREROUTING of iptables-legacy raw",
    );
    report.expect("rules/untracked", "warning", "untracked of ip mine");
    report.expect("rules/translated", "warning", "chain first of ip mine");
}

#[test]
fn rules_in_both_iptables_rulesets_are_a_mix() {
    let patient = Patient::new();
    patient.run("iptables-nft -w 30 -A INPUT -p icmp -j ACCEPT");
    assert_eq!(patient.examine(&[]).finding("proxies/iptables-mix"), None);
    patient.run("iptables-legacy -w 30 -A INPUT -p icmp -j ACCEPT");
    let report = patient.examine(&[]);
    report.expect(
        "proxies/iptables-mix",
        "warning",
        "iptables-nft, iptables-legacy",
    );
}

#[test]
fn a_kube_proxys_rules_are_in_the_way_of_ours_only() {
    let patient = Patient::new();
    patient.run(
        "iptables-nft -w 30 -t nat -N KUBE-SERVICES
         iptables-nft -w 30 -t nat -A PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES
         nft add table ip kube-proxy",
    );
    let report = patient.examine(&[]);
    report.expect(
        "proxies/kube-proxy-iptables",
        "note",
        "1 chains in iptables-nft",
    );
    report.expect("proxies/kube-proxy-nftables", "note", "IPv4");
    patient.run("nft add table ip ferrovia");
    let report = patient.examine(&[]);
    report.expect("proxies/kube-proxy-iptables", "problem", "iptables-nft");
    report.expect("proxies/kube-proxy-nftables", "problem", "IPv4");
    assert_eq!(report.code, Some(2));
}
