//! Configuration files, and what other programs print about the kernel.

use std::borrow::Cow;

use ferrovia::config::decode::decode;
use ferrovia_core::dialect::iptables::{Commits, canonical, leftovers, parse};
use ferrovia_core::family::Family;
use ferrovia_host::survey::chains::of_saved;
use ferrovia_lab::fuzz::FuzzTarget;

use super::corpus;

#[test]
fn hostile_configuration_is_read_or_refused() {
    let folder = corpus("config");
    let target = FuzzTarget {
        name: "configuration",
        corpus: &folder,
        pieces: &[
            b"\n",
            b": ",
            b"- ",
            b"  ",
            b"{",
            b"}",
            b"[",
            b"]",
            b"\"",
            b"&a ",
            b"*a",
            b"<<: ",
            b"null",
            b"~",
            b"-1",
            b"1e999",
            b"0x7fffffffffffffff",
            b"9999999h",
            b"-1ns",
            b"\xff",
            b"!!int ",
            b"---\n",
            b"ferrovia:\n",
        ],
        longest: 16 * 1024,
    };
    target.run(|_, bytes| match decode(bytes) {
        Ok(decoded) => one_line(&decoded.remark.unwrap_or_default()),
        Err(error) => one_line(&error.to_string()),
    });
}

#[test]
fn hostile_listings_are_read_as_far_as_they_make_sense() {
    let folder = corpus("save");
    let target = FuzzTarget {
        name: "listings",
        corpus: &folder,
        pieces: &[
            b"*nat\n",
            b"COMMIT\n",
            b":KUBE-SVC-A - [0:0]\n",
            b"-A KUBE-SERVICES ",
            b"-j KUBE-SEP-B",
            b"\"",
            b"\\\"",
            b"\\",
            b" ",
            b"  ",
            b"\n",
            b"--comment ",
            b"-j",
            b"-g",
            b"\xff",
            b"[1:2] ",
        ],
        longest: 16 * 1024,
    };
    target.run(|_, bytes| {
        // As the programs' output is read.
        let text = String::from_utf8_lossy(bytes);
        listing(&text);
    });
}

fn listing(text: &str) {
    for table in parse(text) {
        for rule in &table.rules {
            let spelt = canonical(rule.args);
            assert_eq!(canonical(&spelt), spelt, "it settles at once");
            let targets: Vec<Cow<'_, str>> = rule.targets().collect();
            assert!(targets.len() <= rule.args.len());
        }
    }
    if let Some(removal) = leftovers(text) {
        let kept: Vec<_> = removal.kept().collect();
        assert!(removal.chains() + removal.rules() + kept.len() > 0);
        // What is fed to the tool has one command a line, whatever was in the listing.
        for line in removal.restore_input(Commits::One).lines() {
            let is_known = ["*", ":", "-D ", "-X ", "-F ", "COMMIT"];
            assert!(
                is_known.iter().any(|start| line.starts_with(start)),
                "{line:?}"
            );
        }
    }
    for family in Family::ALL {
        of_saved(family, text);
    }
}

/// Goes into a log.
fn one_line(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?}");
}
