//! What is written by `--write-config-to` means the same when it is read, and nothing is too odd to be read without a panic.

use ferrovia::config::{Config, decode::decode, flags};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::support::{HEADER, load};

/// Flags to choose from: all of them good, and any number of them together.
const FLAGS: [&str; 54] = [
    "--proxy-mode=nftables",
    "--proxy-mode=ipvs",
    "--proxy-mode=iptables",
    "--manifests=/m",
    "--hostname-override= Node ",
    "--bind-address=2001:db8::1",
    "--bind-address=010.1.2.3",
    "--healthz-bind-address=",
    "--healthz-bind-address=::1",
    "--metrics-bind-address=0.0.0.0:1",
    "--metrics-port=0",
    "--healthz-port=5",
    "--cluster-cidr=10.0.0.0/8,fd00::/8",
    "--detect-local-mode=NodeCIDR",
    "--nodeport-addresses=primary",
    "--masquerade-all",
    "--masquerade-bit=0",
    "--iptables-masquerade-bit=31",
    "--iptables-sync-period=1h2m3.5s",
    "--iptables-min-sync-period=1us",
    "--ipvs-sync-period=48h",
    "--ipvs-min-sync-period=7s",
    "--sync-period=100s",
    "--min-sync-period=1ms",
    "--ipvs-exclude-cidrs=10.0.0.0/8",
    "--ipvs-scheduler=yes",
    "--iptables-localhost-nodeports=false",
    "--conntrack-max=5",
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-established=0",
    "--conntrack-udp-timeout=3s",
    "--kube-api-qps=0.1",
    "--kube-api-qps=1e10",
    "--kube-api-burst=7",
    "--oom-score-adj=0",
    "--no-counters",
    "--no-endpoints=drop",
    "--when-owned=exit",
    "--external-ips=deny",
    "--egress-masquerade",
    "--ipvs-local-fallback",
    "--proxy-mode=userspace",
    "--proxy-port-range=40000-40010",
    "--userspace-portals=bind",
    "--udp-timeout=5s",
    "--egress-masquerade-except=192.0.2.0/24",
    "--web-bind-address=",
    "--web-bind-address=192.0.2.1:80",
    "--admin-socket=",
    "--admin-socket=/s",
    "--vmodule=a*=1,true=2",
    "--logging-format=json",
    "--feature-gates=AllowServiceExternalIPs=false",
    "--show-hidden-metrics-for-version=1.35",
];

/// All of a configuration that a file can say.
fn meaning(config: &Config) -> String {
    let mut config = config.clone();
    config.config_file = None;
    config.flags.clear();
    config.remarks.clear();
    format!("{config:#?}")
}

fn yaml(config: &Config) -> String {
    serde_saphyr::to_string(&config.document).expect("a document can be written")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_written_means_the_same(chosen in subsequence(&FLAGS[..], 0..FLAGS.len())) {
        let flags: Vec<String> = chosen.into_iter().map(str::to_owned).collect();
        // Flags that contradict each other give no configuration, and nothing is written then.
        if let Ok(config) = load(&flags, None) {
            let written = yaml(&config);
            let again = load(&[], Some(&written)).expect("what was valid stays valid");
            prop_assert_eq!(meaning(&config), meaning(&again));
            prop_assert_eq!(yaml(&again), written);
            prop_assert!(again.remarks.iter().all(|remark| !remark.text.contains("leniently")));
        }
    }

    #[test]
    fn no_bytes_are_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn no_text_is_too_odd(text in "\\PC{0,200}") {
        let _ = decode(format!("{HEADER}{text}").as_bytes());
    }

    /// A good file with a few characters replaced, which comes further than noise.
    #[test]
    fn no_edit_is_too_odd(edits in proptest::collection::vec((any::<usize>(), select(EDITS.to_vec())), 1..6)) {
        let mut text: Vec<char> = include_str!("defaults.yaml").chars().collect();
        for (place, with) in edits {
            let place = place % text.len();
            text.splice(place..=place, with.chars());
        }
        let text: String = text.into_iter().collect();
        let _ = load(&[], Some(&text));
    }

    #[test]
    fn no_arguments_are_too_odd(arguments in proptest::collection::vec("-{0,2}[a-z_=-]{0,20}[=]?\\PC{0,10}", 0..4)) {
        if let Ok(typed) = flags::parse(arguments) {
            let _ = Config::load(typed);
        }
    }
}

const EDITS: [&str; 16] = [
    ":",
    "\n",
    "- ",
    "\"",
    "'",
    "{",
    "[",
    "&a ",
    "*a",
    "<<: *a",
    "!!str ",
    "|",
    "\t",
    "~",
    "99999999999999999999",
    "\u{1b}[2J",
];

/// A few lines that would be billions.
#[test]
fn aliases_do_not_multiply() {
    let mut text = HEADER.to_owned() + "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for level in 1..12 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        text += &format!("a{level}: &a{level} [{inner}]\n");
    }
    assert!(decode(text.as_bytes()).is_err());
}

#[test]
fn a_huge_file_is_refused() {
    let text = HEADER.to_owned() + &"# nothing\n".repeat(200_000);
    assert!(decode(text.as_bytes()).is_err());
    let deep = HEADER.to_owned() + "x: " + &"[".repeat(100_000);
    assert!(decode(deep.as_bytes()).is_err());
}
