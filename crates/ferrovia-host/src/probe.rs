//! What this kernel is and can do, asked at start: its version, its address families, and whether it has all that the nftables mode needs,
//! so that a missing piece is named then and not met later.

use std::env;
use std::fs;
use std::io;

use ferrovia_core::dialect::nft::bytecode::{Bytes, CtKey, Expr, PayloadBase};
use ferrovia_core::family::Family;
use ferrovia_netlink::Refusal;

use crate::nft::{self, Nft};
use crate::privileges::{self, RULES};

/// The oldest kernel whose nf_tables does all we ask of it.
const OLDEST_KERNEL: KernelVersion = KernelVersion(5, 13);
/// Where the kernel says what it is.
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// Set to anything, the version is not looked at: distributions carry features back. The name is
/// kube-proxy's.
const SKIP_VERSION_CHECK: &str = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK";
/// The first register of the probing rules.
const REG: u32 = 8;

/// A kernel's version, as far as it matters to us: major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    /// Reads what the kernel calls its release, such as `6.1.0-13-amd64`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let major = numbers.next()?.parse().ok()?;
        Some(Self(major, numbers.next()?.parse().ok()?))
    }

    /// That of the running kernel, if known.
    pub fn running() -> Option<Self> {
        Self::parse(&fs::read_to_string(RELEASE).ok()?)
    }
}

/// Why the nftables mode cannot work here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel is too old.
    #[error("cannot run the nftables mode on Linux {found}: 5.13 or newer is required")]
    TooOld {
        /// What the kernel calls itself.
        found: String,
    },
    #[error(
        "cannot write nftables rules without CAP_NET_ADMIN: run as root, or add the capability to the container"
    )]
    NoNetAdmin,
    /// A file that says what this kernel is cannot be read.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        path: &'static str,
        cause: io::Error,
    },
    #[error("cannot use nf_tables (is CONFIG_NF_TABLES missing from this kernel?): {0}")]
    NoNftables(nft::Error),
    #[error("this kernel lacks {}", list(.0))]
    Lacks(Vec<Lack>),
}

/// Something the kernel cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The kernel's build option for it.
    pub option: String,
    /// What it would be used for.
    pub purpose: &'static str,
    /// How the kernel said that it cannot.
    pub refusal: Refusal,
}

/// Checks that this kernel and this process can run the nftables mode. Changes nothing.
///
/// # Errors
/// Says what is missing.
pub fn nftables(families: &[Family]) -> Result<(), Error> {
    check_version()?;
    privileges::require(&[RULES]).map_err(|_| Error::NoNetAdmin)?;
    let mut nft = Nft::open().map_err(Error::NoNftables)?;
    nft.generation().map_err(Error::NoNftables)?;
    let mut lacks = Vec::new();
    for &family in families {
        lacks.extend(missing_features(&mut nft, family)?);
    }
    if lacks.is_empty() {
        Ok(())
    } else {
        Err(Error::Lacks(lacks))
    }
}

/// The address families this node has: IPv6 can be missing from the kernel or be switched off.
pub fn supported_families() -> Vec<Family> {
    let built_in = fs::exists("/proc/thread-self/net/if_inet6").unwrap_or(false);
    let disabled = fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6");
    let disabled = disabled.is_ok_and(|value| value.trim() == "1");
    Family::ALL
        .into_iter()
        .filter(|family| *family == Family::V4 || built_in && !disabled)
        .collect()
}

fn check_version() -> Result<(), Error> {
    if env::var_os(SKIP_VERSION_CHECK).is_some_and(|value| !value.is_empty()) {
        return Ok(());
    }
    let unreadable = |cause| Error::Unreadable {
        path: RELEASE,
        cause,
    };
    let release = fs::read_to_string(RELEASE).map_err(unreadable)?;
    let found = release.trim().to_owned();
    match KernelVersion::parse(&found) {
        Some(version) if version < OLDEST_KERNEL => Err(Error::TooOld { found }),
        // A version we cannot read is no reason to refuse: the features are tried one by one below.
        _ => Ok(()),
    }
}

/// An instruction that the nftables mode requires.
struct Feature {
    option: &'static str,
    purpose: &'static str,
    rule: Vec<Expr>,
}

fn missing_features(nft: &mut Nft, family: Family) -> Result<Vec<Lack>, Error> {
    let features = features(family);
    let rules: Vec<_> = features
        .iter()
        .map(|feature| feature.rule.clone())
        .collect();
    let rehearsal = nft.rehearse(family, &rules).map_err(Error::NoNftables)?;
    let chain = rehearsal
        .nat_chain
        .map(|refusal| lack("CONFIG_NFT_NAT", "chains that translate addresses", refusal));
    let rules = features
        .iter()
        .zip(rehearsal.rules)
        .filter_map(|(feature, refusal)| Some(lack(feature.option, feature.purpose, refusal?)));
    Ok(chain.into_iter().chain(rules).collect())
}

fn lack(option: &str, purpose: &'static str, refusal: Refusal) -> Lack {
    Lack {
        option: option.to_owned(),
        purpose,
        refusal,
    }
}

/// One rule for each instruction that is a kernel option of its own. Registers must be loaded
/// before they are used.
fn features(family: Family) -> Vec<Feature> {
    let (addr_len, saddr) = match family {
        Family::V4 => (4, 12),
        Family::V6 => (16, 8),
    };
    let by_family = |v4, v6| if family == Family::V4 { v4 } else { v6 };
    let zeroes = |dreg, len| Expr::Immediate {
        dreg,
        data: Bytes::from_elem(0, len),
    };
    let load_source = Expr::Payload {
        dreg: REG,
        base: PayloadBase::Network,
        offset: saddr,
        len: addr_len,
    };
    let port = REG + addr_len / 4;
    let feature = |option, purpose, rule| Feature {
        option,
        purpose,
        rule,
    };
    vec![
        feature(
            "CONFIG_NFT_CT",
            "knowing new connections",
            vec![Expr::Ct {
                dreg: REG,
                key: CtKey::State,
            }],
        ),
        feature(
            "CONFIG_NFT_NAT",
            "sending connections to endpoints",
            vec![
                zeroes(REG, addr_len as usize),
                zeroes(port, 2),
                Expr::Dnat {
                    family,
                    addr: REG,
                    port,
                },
            ],
        ),
        feature("CONFIG_NFT_MASQ", "masquerading", vec![Expr::Masquerade]),
        feature(
            by_family("CONFIG_NFT_REJECT_IPV4", "CONFIG_NFT_REJECT_IPV6"),
            "refusing connections to services without endpoints",
            vec![Expr::Reject],
        ),
        feature(
            by_family("CONFIG_NFT_FIB_IPV4", "CONFIG_NFT_FIB_IPV6"),
            "node ports",
            vec![Expr::FibAddrType {
                dreg: REG,
                source: false,
            }],
        ),
        feature(
            "CONFIG_NFT_NUMGEN",
            "choosing endpoints at random",
            vec![Expr::Random {
                dreg: REG,
                modulus: 2,
            }],
        ),
        feature(
            "CONFIG_NFT_HASH",
            "choosing endpoints by source address",
            vec![
                load_source,
                Expr::Hash {
                    dreg: REG,
                    sreg: REG,
                    len: addr_len,
                    modulus: 2,
                    seed: 1,
                },
            ],
        ),
    ]
}

fn list(lacks: &[Lack]) -> String {
    let each = lacks
        .iter()
        .map(|lack| format!("{} (for {}: {})", lack.option, lack.purpose, lack.refusal));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        let version = KernelVersion::parse;
        assert_eq!(version("6.18.2-amd64\n"), Some(KernelVersion(6, 18)));
        assert_eq!(version("5.15-rc1+foo"), Some(KernelVersion(5, 15)));
        assert_eq!(version("6.1"), Some(KernelVersion(6, 1)));
        assert_eq!(version("linux"), None);
        assert_eq!(version(""), None);
        assert!(version("5.4.0") < Some(OLDEST_KERNEL));
        assert!(version("5.13.0-rc1") >= Some(OLDEST_KERNEL));
    }

    #[test]
    fn a_lack_names_the_option_and_what_it_is_for() {
        let refusal = Refusal {
            errno: libc::ENOENT,
            message: None,
            offset: None,
        };
        let error = Error::Lacks(vec![lack("CONFIG_NFT_FIB_IPV6", "node ports", refusal)]);
        assert_eq!(
            error.to_string(),
            "this kernel lacks CONFIG_NFT_FIB_IPV6 (for node ports: No such file or directory)"
        );
    }
}
