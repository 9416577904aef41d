//! Only `mode.rs` and `mode/` name a mode, so that a new one is a new file and a line in `mode::ALL`.

use std::fs;
use std::path::{Path, PathBuf};

use ferrovia::mode;

/// Where a name of a mode stands for something else.
const ALLOWED: [(&str, &str); 3] = [
    // The sections of kube-proxy's file format are named after its modes.
    ("config/file.rs", ""),
    // A way of the kernel to keep iptables rules.
    ("inspect/doctor/", "Ruleset::Nftables"),
    // A value of this flag, which says that rules lead to the proxies.
    ("config/flags/table/kernel.rs", "\"iptables\","),
];

#[test]
fn only_the_mode_module_names_a_mode() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    each_file(&root, &mut |path| {
        let name = path.strip_prefix(&root).expect("it is below src");
        let name = name.to_str().expect("names are UTF-8");
        let is_test = name.ends_with("tests.rs");
        if !name.starts_with("mode/") && name != "mode.rs" && !is_test {
            let text = fs::read_to_string(path).expect("it can be read");
            found.extend(named_in(name, &text));
        }
    });
    assert_eq!(found, [""; 0], "see `Adding a mode` in ARCHITECTURE.md");
}

#[test]
fn names_of_modes_are_found() {
    let text = "\
let a = Mode::Ipvs;
match name { \"userspace\" => 1 }
use crate::mode::nftables;
let said = \"the ipvs mode\"; // Iptables
fn ipvs(ipvs: IpvsSettings) {}
#[cfg(test)]
mod tests { use Iptables; }
";
    let found = named_in("x.rs", text);
    let lines: Vec<_> = found.iter().map(|line| &line[..6]).collect();
    assert_eq!(lines, ["x.rs:1", "x.rs:2", "x.rs:3"], "{found:?}");
}

fn each_file(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            each_file(&path, visit);
        } else {
            visit(&path);
        }
    }
}

/// The lines, tests and comments left out, that have a mode's name as a whole string, as an identifier such as an enum's variant, or as a
/// module of `mode`.
fn named_in(name: &str, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next();
    let lines = code.unwrap_or_default().lines().enumerate();
    let named = lines.filter(|(_, line)| {
        let code = line.split("//").next().unwrap_or_default();
        let is_named = mode::ALL.iter().any(|mode| names(code, mode.name()));
        let is_allowed =
            |(file, what): &(&str, &str)| name.starts_with(file) && code.contains(what);
        is_named && !ALLOWED.iter().any(is_allowed)
    });
    named
        .map(|(number, line)| format!("{name}:{}: {}", number + 1, line.trim()))
        .collect()
}

fn names(code: &str, mode: &str) -> bool {
    let (first, rest) = mode.split_at(1);
    let variant = first.to_uppercase() + rest;
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = code.split(|c| !is_part(c));
    code.contains(&format!("\"{mode}\""))
        || code.contains(&format!("mode::{mode}"))
        || words.any(|word| word == variant)
}
