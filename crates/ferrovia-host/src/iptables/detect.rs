//! Which of the kernel's two iptables rulesets this node uses.
//!
//! Rules in both would be in force at once, in an undefined order. So we write where the kubelet has written, for it reports it on
//! purpose; else where a kube-proxy or anybody else has; else where plain `iptables` writes, which is the administrator's choice; else to
//! nftables' side, which is where new machines are, unless the kernel has no nftables. What is found on the other side is reported.

use std::env;
use std::ffi::OsStr;
use std::time::Duration;

use ferrovia_core::dialect::iptables::{TableName, parse};
use ferrovia_core::family::{Family, PerFamily};

use super::lock::Lock;
use super::tool::{Backend, ChainPresence, Tool, tools_on};
use crate::exec;
use crate::nft::Nft;

/// Chains by which the kubelet shows where it writes. In the mangle table, which is cheap to read.
const HINTS: [&str; 2] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];
/// A chain that every kube-proxy makes.
const PREVIOUS_PROXY: &str = "KUBE-SERVICES";
/// The oldest version with everything that is asked of it: a restoring tool that waits for the lock, and masquerading with fully random ports.
const OLDEST: [u32; 3] = [1, 6, 2];

/// Why the iptables mode cannot work here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are no tools.
    #[error(
        "cannot find {tool}, {tool}-save and {tool}-restore on PATH ({path}): install iptables, or use the nftables mode, which needs no tools"
    )]
    Missing { tool: String, path: String },
    /// The tools are too old.
    #[error("{tool} is too old (\"{version}\"): 1.6.2 or newer is required")]
    TooOld { tool: String, version: String },
    #[error("cannot detect the iptables backend of this node: {0}")]
    Failed(exec::Error),
}

impl From<exec::Error> for Error {
    fn from(error: exec::Error) -> Self {
        Self::Failed(error)
    }
}

/// The tools to use, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    /// Where this node's rules are.
    pub backend: Backend,
    pub reason: &'static str,
    /// The tool of each family asked for.
    pub tools: PerFamily<Option<Tool>>,
    /// What people should know: rules on the other side.
    pub warnings: Vec<String>,
}

/// Finds the tools for these families and chooses among the kernel's two rulesets. Changes nothing.
///
/// # Errors
/// If there are no tools, or they are too old, or fail.
pub fn detect(families: &[Family]) -> Result<Detected, Error> {
    detect_on(&env::var_os("PATH").unwrap_or_default(), families)
}

fn detect_on(path: &OsStr, families: &[Family]) -> Result<Detected, Error> {
    let missing = |tool: String| Error::Missing {
        tool,
        path: path.to_string_lossy().into_owned(),
    };
    let tools = usable_tools(path, families)?;
    if let Some(family) = families
        .iter()
        .find(|family| !tools.iter().any(|tool| tool.family == **family))
    {
        return Err(missing(plain_name(*family).into()));
    }
    let evidence = Evidence::gather(&tools)?;
    let (backend, reason) = evidence.choose(|| preferred(path, families));
    let mut chosen = PerFamily::default();
    for family in families {
        let mut of_family = tools.iter().filter(|tool| tool.family == *family);
        let tool = of_family.find(|tool| tool.backend == backend).cloned();
        let name = || backend.as_str().replace("iptables", plain_name(*family));
        chosen[*family] = Some(tool.ok_or_else(|| missing(name()))?);
    }
    Ok(Detected {
        backend,
        reason,
        tools: chosen,
        warnings: evidence.warnings(backend),
    })
}

/// The tools for these families, none of them too old.
fn usable_tools(path: &OsStr, families: &[Family]) -> Result<Vec<Tool>, Error> {
    let mut tools = tools_on(path);
    tools.retain(|tool| families.contains(&tool.family));
    for tool in &mut tools {
        let version = tool.version()?;
        if parse_version(&version).is_none_or(|found| found < OLDEST) {
            let tool = tool.name();
            return Err(Error::TooOld { tool, version });
        }
        if tool.backend == Backend::Chosen {
            tool.backend = backend_of(&version);
        }
    }
    Ok(tools)
}

fn plain_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

/// The numbers of `iptables v1.8.9 (nf_tables)`.
fn parse_version(text: &str) -> Option<[u32; 3]> {
    let version = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix('v'))?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some([
        numbers.next()??,
        numbers.next()??,
        numbers.next().flatten().unwrap_or(0),
    ])
}

/// Before 1.8 there was only one.
pub(super) fn backend_of(version: &str) -> Backend {
    if version.contains("nf_tables") {
        Backend::Nft
    } else {
        Backend::Legacy
    }
}

/// What was found on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Side {
    /// There is a tool for it.
    has_tool: bool,
    /// The kubelet says it writes here.
    hint: bool,
    /// A kube-proxy has written here.
    previous_proxy: bool,
    /// Another process has rules here.
    rules: bool,
    /// The kernel takes none.
    is_refused: bool,
}

/// What was found on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Evidence {
    nft: Side,
    legacy: Side,
}

impl Evidence {
    fn gather(tools: &[Tool]) -> Result<Self, exec::Error> {
        let mut evidence = Self::default();
        for tool in tools {
            let side = match tool.backend {
                Backend::Legacy => &mut evidence.legacy,
                _ => &mut evidence.nft,
            };
            side.has_tool = true;
            if !tool.has_tables() {
                continue;
            }
            let mangle = tool.save(&["-t", "mangle"])?;
            side.hint |= has_chain(&mangle, &HINTS);
            if tool.backend == Backend::Legacy {
                Lock::new(Duration::ZERO).tell_if_held();
            }
            side.previous_proxy |= match tool.has_chain(TableName::Nat, PREVIOUS_PROXY)? {
                ChainPresence::There => true,
                ChainPresence::Missing => false,
                // Another process holds the lock. Printing the whole table takes longer, but does not take that.
                ChainPresence::Unknown => has_chain(&tool.save(&["-t", "nat"])?, &[PREVIOUS_PROXY]),
            };
            side.rules |= side.hint || side.previous_proxy;
        }
        // Only without any other hint is the whole ruleset read: it may be large.
        if evidence.is_empty() {
            for tool in tools.iter().filter(|tool| tool.has_tables()) {
                let has_rules = parse(&tool.save(&[])?)
                    .iter()
                    .any(|table| !table.rules.is_empty());
                match tool.backend {
                    Backend::Legacy => evidence.legacy.rules |= has_rules,
                    _ => evidence.nft.rules |= has_rules,
                }
            }
        }
        if evidence.is_empty() && evidence.legacy.has_tool {
            let mut nft = tools.iter().filter(|tool| tool.backend == Backend::Nft);
            evidence.nft.is_refused = !nft.all(|tool| takes_rules(tool.family));
        }
        Ok(evidence)
    }

    /// No rules exist.
    fn is_empty(&self) -> bool {
        !self.nft.rules && !self.legacy.rules
    }

    /// `preferred` says which one plain `iptables` is.
    fn choose(&self, preferred: impl FnOnce() -> Option<Backend>) -> (Backend, &'static str) {
        let Self { nft, legacy } = self;
        for (reason, on_nft, on_legacy) in [
            ("the kubelet uses it", nft.hint, legacy.hint),
            (
                "kube-proxy's rules are there",
                nft.previous_proxy,
                legacy.previous_proxy,
            ),
            ("this node's rules are there", nft.rules, legacy.rules),
        ] {
            if on_nft {
                return (Backend::Nft, reason);
            }
            if on_legacy {
                return (Backend::Legacy, reason);
            }
        }
        let preferred = preferred();
        if nft.is_refused {
            (Backend::Legacy, "the kernel takes no rules of iptables-nft")
        } else if preferred == Some(Backend::Legacy) && legacy.has_tool {
            (Backend::Legacy, "plain iptables is iptables-legacy here")
        } else if preferred == Some(Backend::Nft) && nft.has_tool {
            (Backend::Nft, "plain iptables is iptables-nft here")
        } else if nft.has_tool {
            (Backend::Nft, "there are no rules yet")
        } else {
            (Backend::Legacy, "there are no other tools")
        }
    }

    fn warnings(&self, chosen: Backend) -> Vec<String> {
        let (other, side) = match chosen {
            Backend::Legacy => (Backend::Nft, &self.nft),
            _ => (Backend::Legacy, &self.legacy),
        };
        let (other, chosen) = (other.as_str(), chosen.as_str());
        let mut warnings = Vec::new();
        if side.hint {
            warnings.push(format!(
                "the kubelet has chains in {other} as well as in {chosen}; we write to {chosen} only, and one of the two should go"
            ));
        }
        if side.previous_proxy {
            warnings.push(format!(
                "kube-proxy's rules are in {other}, but this node uses {chosen}; both are in force until the old ones are removed"
            ));
        }
        warnings
    }
}

/// Which of the two plain `iptables` is, by its own words; none if it is missing, does not work, or differs by family.
fn preferred(path: &OsStr, families: &[Family]) -> Option<Backend> {
    let mut chosen = None;
    for family in families {
        let version = Tool::find(path, *family, Backend::Chosen)?.version().ok()?;
        let backend = backend_of(&version);
        if *chosen.get_or_insert(backend) != backend {
            return None;
        }
    }
    chosen
}

/// Whether the kernel has nf_tables for this family: the tool would find out only when it writes.
fn takes_rules(family: Family) -> bool {
    let rehearsal = Nft::open().and_then(|mut nft| nft.rehearse(family, &[]));
    rehearsal.is_ok_and(|rehearsal| rehearsal.nat_chain.is_none())
}

fn has_chain(save: &str, names: &[&str]) -> bool {
    parse(save)
        .iter()
        .flat_map(|table| &table.chains)
        .any(|chain| names.contains(&chain.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Side = Side {
        has_tool: true,
        hint: false,
        previous_proxy: false,
        rules: false,
        is_refused: false,
    };

    #[test]
    fn versions_are_read() {
        assert_eq!(
            parse_version("iptables v1.8.9 (nf_tables)"),
            Some([1, 8, 9])
        );
        assert_eq!(parse_version("iptables v1.8 (legacy)"), Some([1, 8, 0]));
        assert_eq!(parse_version("iptables 1.8"), None);
        assert!(parse_version("iptables v1.4.21").unwrap() < OLDEST);
        assert!(parse_version("iptables v1.10.0").unwrap() > OLDEST);
    }

    #[test]
    fn the_kubelets_word_goes_before_rules_and_rules_before_the_default() {
        let hint = Side {
            hint: true,
            ..NOTHING
        };
        let previous_proxy = Side {
            previous_proxy: true,
            ..NOTHING
        };
        let rules = Side {
            rules: true,
            ..NOTHING
        };
        let chosen = |nft, legacy| Evidence { nft, legacy }.choose(|| None).0;
        assert_eq!(chosen(NOTHING, NOTHING), Backend::Nft);
        assert_eq!(chosen(previous_proxy, hint), Backend::Legacy);
        assert_eq!(chosen(hint, hint), Backend::Nft);
        assert_eq!(chosen(rules, previous_proxy), Backend::Legacy);
        assert_eq!(chosen(NOTHING, rules), Backend::Legacy);
        assert_eq!(chosen(Side::default(), NOTHING), Backend::Legacy);
        let refused = Side {
            is_refused: true,
            ..NOTHING
        };
        assert_eq!(chosen(refused, NOTHING), Backend::Legacy);
    }

    #[test]
    fn the_administrators_choice_goes_before_the_default_and_behind_rules() {
        let rules = Side {
            rules: true,
            ..NOTHING
        };
        let refused = Side {
            is_refused: true,
            ..NOTHING
        };
        let chosen = |nft, legacy, preferred| Evidence { nft, legacy }.choose(|| Some(preferred)).0;
        assert_eq!(chosen(NOTHING, NOTHING, Backend::Legacy), Backend::Legacy);
        assert_eq!(chosen(NOTHING, NOTHING, Backend::Nft), Backend::Nft);
        assert_eq!(chosen(rules, NOTHING, Backend::Legacy), Backend::Nft);
        assert_eq!(chosen(NOTHING, rules, Backend::Nft), Backend::Legacy);
        assert_eq!(chosen(refused, NOTHING, Backend::Nft), Backend::Legacy);
        assert_eq!(
            chosen(NOTHING, Side::default(), Backend::Legacy),
            Backend::Nft
        );
    }

    #[test]
    fn plain_iptables_says_which_it_is() {
        let version = |backend: &str| format!("iptables v1.8.9 ({backend})");
        let plain = |backend: &str| {
            let folder = ferrovia_lab::Folder::new();
            for tool in ["iptables", "ip6tables"] {
                for (kind, says) in [("", backend), ("-nft", "nf_tables"), ("-legacy", "legacy")] {
                    for ending in ["", "-save", "-restore"] {
                        let program = format!("{tool}{kind}{ending}");
                        folder.write_program(&program, &format!("echo '{}'", version(says)));
                    }
                }
            }
            folder
        };
        for (backend, wanted) in [("legacy", Backend::Legacy), ("nf_tables", Backend::Nft)] {
            let folder = plain(backend);
            let path = folder.path().as_os_str();
            assert_eq!(preferred(path, &Family::ALL), Some(wanted));
        }
        assert_eq!(preferred(OsStr::new("/nonexistent"), &Family::ALL), None);
        let folder = plain("legacy");
        folder.write_program("ip6tables", &format!("echo '{}'", version("nf_tables")));
        assert_eq!(preferred(folder.path().as_os_str(), &Family::ALL), None);
    }

    #[test]
    fn an_empty_node_gets_what_plain_iptables_is() {
        use std::os::unix::fs::symlink;
        for (multi, wanted) in [("legacy", Backend::Legacy), ("nft", Backend::Nft)] {
            let folder = ferrovia_lab::Folder::new();
            for name in ["iptables", "ip6tables"] {
                for ending in ["", "-save", "-restore"] {
                    let program = format!("/usr/sbin/xtables-{multi}-multi");
                    symlink(program, folder.join(format!("{name}{ending}"))).unwrap();
                }
            }
            let path = env::join_paths([folder.path(), "/usr/sbin".as_ref()]).unwrap();
            let found = ferrovia_lab::namespace::in_namespace(move || {
                detect_on(&path, &Family::ALL).unwrap()
            });
            assert_eq!(found.backend, wanted, "{}", found.reason);
        }
    }

    /// A folder with programs that say they are of some version, and otherwise nothing.
    fn with_tools(version: &str, check: impl FnOnce(&OsStr)) {
        let folder = ferrovia_lab::Folder::new();
        for program in ["iptables", "iptables-save", "iptables-restore"] {
            folder.write_program(program, &format!("echo '{version}'"));
        }
        check(folder.path().as_os_str());
    }

    #[test]
    fn missing_and_old_tools_are_named() {
        with_tools("iptables v1.4.21", |path| {
            let error = detect_on(path, &[Family::V4]).unwrap_err().to_string();
            assert!(
                error.contains("iptables is too old (\"iptables v1.4.21\")"),
                "{error}"
            );
        });
        with_tools("iptables v1.8.9 (nf_tables)", |path| {
            let found = detect_on(path, &[Family::V4]).unwrap();
            assert_eq!(found.backend, Backend::Nft);
            let error = detect_on(path, &Family::ALL).unwrap_err().to_string();
            assert!(
                error.contains("cannot find ip6tables, ip6tables-save"),
                "{error}"
            );
        });
        let error = detect_on(OsStr::new("/nonexistent"), &[Family::V4]).unwrap_err();
        assert!(error.to_string().contains("PATH (/nonexistent)"), "{error}");
    }

    #[test]
    fn reports_rules_in_both_backends() {
        let both = Side {
            hint: true,
            previous_proxy: true,
            ..NOTHING
        };
        let evidence = Evidence {
            nft: both,
            legacy: both,
        };
        assert_eq!(evidence.warnings(Backend::Nft).len(), 2);
        let one = Evidence {
            nft: both,
            legacy: NOTHING,
        };
        assert_eq!(one.warnings(Backend::Nft), [""; 0]);
    }
}
