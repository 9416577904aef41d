//! `goldens/*.txt`: flags and files, and the resulting configuration or error. `BLESS=1` updates the results.
//!
//! ```text
//! # Why this is worth a case.
//! $ --flags --as=typed
//! | lines: of
//! | the: file
//! iptables.syncPeriod: "36s"
//! used pace: Pace { ... }
//! ```
//!
//! Outcomes are differences: fields of the completed document that are not at their default, and values of the configuration as used that are not as
//! they are without any flag. A file gets its two header lines unless it begins with `| raw`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use ferrovia::config::Config;
use ferrovia::config::decode::known_fields;
use ferrovia::config::flags::table;
use ferrovia::mode::ModeSettings;
use ferrovia::version::KUBERNETES;
use serde_json::Value;

use super::support::{HEADER, load};

fn goldens() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/config/goldens")
}

/// One case: comments, input, outcome.
#[derive(Default)]
struct Case {
    comments: Vec<String>,
    flags: Option<String>,
    file: Vec<String>,
    outcome: Vec<String>,
}

fn read(text: &str) -> Vec<Case> {
    text.split("\n\n")
        .map(|block| {
            let mut case = Case::default();
            for line in block.lines().filter(|line| !line.is_empty()) {
                if let Some(comment) = line.strip_prefix('#') {
                    case.comments.push(comment.to_owned());
                } else if let Some(flags) = line.strip_prefix('$') {
                    case.flags = Some(flags.trim().to_owned());
                } else if let Some(file) = line.strip_prefix('|') {
                    case.file
                        .push(file.strip_prefix(' ').unwrap_or(file).to_owned());
                } else {
                    case.outcome.push(line.to_owned());
                }
            }
            case
        })
        .collect()
}

impl Case {
    fn is_comment(&self) -> bool {
        self.flags.is_none() && self.file.is_empty()
    }

    fn run(&self) -> Vec<String> {
        let flags = words(self.flags.as_deref().unwrap_or_default());
        let text = match self.file.split_first() {
            None => None,
            Some((first, rest)) if first == "raw" => Some(rest.join("\n") + "\n"),
            Some(_) => Some(HEADER.to_owned() + &self.file.join("\n") + "\n"),
        };
        let outcome = match load(&flags, text.as_deref()) {
            Ok(config) => differences(&config),
            Err(error) => format!("error: {error}"),
        };
        outcome.lines().map(str::to_owned).collect()
    }

    fn print(&self) -> String {
        let mut text = String::new();
        for comment in &self.comments {
            let _ = writeln!(text, "#{comment}");
        }
        if let Some(flags) = &self.flags {
            let _ = writeln!(text, "{}", format!("$ {flags}").trim_end());
        }
        for line in &self.file {
            let _ = writeln!(text, "{}", format!("| {line}").trim_end());
        }
        for line in &self.outcome {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// Words between blanks; single quotes keep blanks.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            ' ' if !is_quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What differs from a start without flags.
fn differences(config: &Config) -> String {
    let plain = load(&[], None).expect("no flags are good flags");
    let mut text = String::new();
    let (theirs, ours) = (flat(&plain.document), flat(&config.document));
    let fields: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    for field in fields {
        let (before, now) = (theirs.get(field), ours.get(field));
        if before != now {
            let now = now.map_or("absent", String::as_str);
            let _ = writeln!(text, "{field}: {now}");
        }
    }
    for ((name, before), (_, now)) in used(&plain).into_iter().zip(used(config)) {
        if before != now {
            let _ = writeln!(text, "used {name}: {now}");
        }
    }
    for remark in &config.remarks {
        let level = if remark.is_warning { "warning" } else { "info" };
        let _ = writeln!(text, "{level}: {}", remark.text);
    }
    if text.is_empty() {
        text.push_str("as without\n");
    }
    text
}

/// Leaves by their path.
fn flat(document: &Value) -> BTreeMap<String, String> {
    fn walk(value: &Value, path: &str, leaves: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (name, value) in fields {
                    let dot = if path.is_empty() { "" } else { "." };
                    walk(value, &format!("{path}{dot}{name}"), leaves);
                }
            }
            leaf => {
                leaves.insert(path.to_owned(), leaf.to_string());
            }
        }
    }
    let mut leaves = BTreeMap::new();
    walk(document, "", &mut leaves);
    leaves
}

/// The values as used. Taken apart, so that a new one cannot be forgotten.
fn used(config: &Config) -> Vec<(&'static str, String)> {
    let Config {
        action,
        source,
        mode,
        settings,
        bind_address,
        pace,
        config_sync_period,
        counters,
        once,
        when_owned,
        health,
        metrics,
        web,
        admin_socket,
        bind_hard_fail,
        profiling,
        show_hidden_metrics,
        oom_score_adj,
        conntrack,
        log,
        localhost_node_ports,
        modes: ModeSettings { ipvs, userspace },
        gates,
        document: _,
        flags: _,
        config_file: _,
        remarks: _,
    } = config;
    let gates: Vec<_> = gates.iter().map(|gate| (gate.name, gate.enabled)).collect();
    let plain: Vec<_> = ferrovia::config::gates::FeatureGates::default()
        .iter()
        .map(|gate| (gate.name, gate.enabled))
        .collect();
    let changed: Vec<_> = gates.iter().filter(|gate| !plain.contains(gate)).collect();
    vec![
        ("action", format!("{action:?}")),
        ("source", format!("{source:?}")),
        ("mode", format!("{:?}", mode.map(|mode| mode.name()))),
        ("node_name", format!("{:?}", settings.node_name)),
        ("node_ips", format!("{:?}", settings.node_ips)),
        ("local", format!("{:?}", settings.local)),
        ("masquerade_all", format!("{:?}", settings.masquerade_all)),
        ("masquerade_bit", format!("{:?}", settings.masquerade_bit)),
        ("no_endpoints", format!("{:?}", settings.no_endpoints)),
        ("egress_except", format!("{:?}", settings.egress_except)),
        ("node_ports", format!("{:?}", settings.node_ports)),
        ("services", format!("{:?}", settings.services)),
        ("bind_address", format!("{bind_address:?}")),
        ("pace", format!("{pace:?}")),
        ("config_sync_period", format!("{config_sync_period:?}")),
        ("counters", format!("{counters:?}")),
        ("once", format!("{once:?}")),
        ("when_owned", format!("{when_owned:?}")),
        ("health", format!("{health:?}")),
        ("metrics", format!("{metrics:?}")),
        ("web", format!("{web:?}")),
        ("admin_socket", format!("{admin_socket:?}")),
        ("bind_hard_fail", format!("{bind_hard_fail:?}")),
        ("profiling", format!("{profiling:?}")),
        ("show_hidden_metrics", format!("{show_hidden_metrics:?}")),
        ("oom_score_adj", format!("{oom_score_adj:?}")),
        ("conntrack", format!("{conntrack:?}")),
        ("log", format!("{log:?}")),
        ("localhost_node_ports", format!("{localhost_node_ports:?}")),
        ("ipvs", format!("{ipvs:?}")),
        ("userspace", format!("{userspace:?}")),
        ("gates", format!("{changed:?}")),
    ]
}

#[test]
fn outcomes_are_as_written() {
    let is_blessing = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(goldens()).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let mut cases = read(&text);
        for case in cases.iter_mut().filter(|case| !case.is_comment()) {
            let outcome = case.run();
            if outcome != case.outcome {
                let before = std::mem::replace(&mut case.outcome, outcome);
                wrong.push(format!(
                    "{}\nexpected:\n{}",
                    case.print(),
                    before.join("\n")
                ));
            }
        }
        if is_blessing {
            let blocks: Vec<_> = cases.iter().map(Case::print).collect();
            std::fs::write(&path, blocks.join("\n")).expect("it can be written");
        }
    }
    assert!(is_blessing || wrong.is_empty(), "{}", wrong.join("\n"));
}

fn all_cases() -> Vec<Case> {
    let files = std::fs::read_dir(goldens()).expect("the folder is there");
    files
        .flat_map(|entry| {
            let path = entry.expect("it can be read").path();
            read(&std::fs::read_to_string(path).expect("it can be read"))
        })
        .collect()
}

/// Every flag needs a case.
#[test]
fn every_flag_has_a_case() {
    let typed: BTreeSet<String> = all_cases()
        .iter()
        .flat_map(|case| words(case.flags.as_deref().unwrap_or_default()))
        .filter_map(|word| {
            let name = word.strip_prefix("--")?;
            Some(name.split('=').next()?.replace('_', "-"))
        })
        .collect();
    for flag in table::flags() {
        assert!(typed.contains(flag.name), "--{} has no case", flag.name);
        for alias in flag.aliases {
            assert!(typed.contains(*alias), "--{alias} has no case");
        }
    }
}

/// The same for fields.
#[test]
fn every_field_has_a_case() {
    let written: String = all_cases()
        .iter()
        .flat_map(|case| case.file.clone())
        .collect();
    for field in known_fields() {
        let name = field.rsplit('.').next().unwrap_or(&field);
        assert!(
            name.is_empty() || written.contains(name),
            "{field} has no case"
        );
    }
}

/// The document that a plain start has, field by field: what every other outcome is a difference from.
#[test]
fn the_defaults_are_as_documented() {
    let config = load(&[], None).expect("no flags are good flags");
    let yaml = serde_saphyr::to_string(&config.document).expect("it can be written");
    let path = goldens().join("../defaults.yaml");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &yaml).expect("it can be written");
    }
    let expected = std::fs::read_to_string(path).expect("it can be read");
    assert_eq!(yaml, expected);
    assert_eq!(KUBERNETES, "v1.36.4");
}

/// The page for people names every flag and every field.
#[test]
fn the_documentation_is_complete() {
    let page = include_str!("../../../../docs/configuration.md");
    for flag in table::flags() {
        assert!(
            page.contains(&format!("--{}", flag.name)),
            "--{}",
            flag.name
        );
    }
    for field in known_fields() {
        let is_section = page.contains(&format!("`{field}."));
        let is_told = page.contains(&format!("`{field}`")) || is_section;
        let is_part = field.starts_with("logging.vmodule") || field.starts_with("featureGates.");
        let is_head = matches!(field.as_str(), "apiVersion" | "kind");
        assert!(is_told || is_part || is_head, "{field}");
    }
}
