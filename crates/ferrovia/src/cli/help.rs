//! What `--help` prints of the daemon's flags: every one under its heading, with its default.

use std::fmt::Write as _;

use super::{COMMANDS, LONG_ABOUT, Program};
use crate::config::flags::{Flag, GROUPS, Kind};
use crate::inspect::wrap::hanging;

/// Where the explanation of a flag begins.
const INDENT: &str = "          ";

const KUBE_PROXY_ABOUT: &str = "\
Ferrovia in the place of kube-proxy: makes connections to a Service's stable address reach one of its pods, by programming this node's \
kernel. Flags, configuration file, health and metrics are kube-proxy's.";

const SPELLING: &str = "\
An underscore may stand for any dash, and a bool needs no value (--once, --once=false). With --config, flags marked [file] are without \
effect: the file has the say.";

/// The whole text.
pub(super) fn daemon(program: Program) -> String {
    let mut text = String::new();
    // A string takes whatever is written to it.
    let _ = match program {
        Program::KubeProxy => write!(
            text,
            "{}\nUsage: kube-proxy [FLAGS]\n",
            hanging("", KUBE_PROXY_ABOUT)
        ),
        Program::Ferrovia => ferrovia(&mut text),
    };
    let _ = write!(text, "\n{}", hanging("", SPELLING));
    for (heading, flags) in GROUPS {
        let _ = writeln!(text, "\n{heading}:");
        for flag in flags {
            describe(&mut text, flag);
        }
    }
    text
}

fn ferrovia(text: &mut String) -> std::fmt::Result {
    for paragraph in LONG_ABOUT.split("\n\n") {
        let is_example = paragraph.contains("\n    ");
        if is_example {
            writeln!(text, "{paragraph}\n")?;
        } else {
            writeln!(text, "{}", hanging("", paragraph))?;
        }
    }
    writeln!(
        text,
        "Usage: ferrovia [run] [FLAGS]\n       ferrovia COMMAND [FLAGS]\n"
    )?;
    writeln!(text, "Commands (ferrovia COMMAND --help explains each):")?;
    for (name, about) in COMMANDS {
        writeln!(text, "  {name:<13}{about}")?;
    }
    Ok(())
}

fn describe(text: &mut String, flag: &Flag) {
    let names = [flag.name].into_iter().chain(flag.aliases.iter().copied());
    let short = flag.short.map(|letter| format!("-{letter}, "));
    let names: Vec<String> = names.map(|name| format!("--{name}")).collect();
    let value = match flag.kind {
        Kind::Bool => String::new(),
        Kind::Optional(value) => format!("[={value}]"),
        Kind::Value(value) | Kind::List(value) => format!(" {value}"),
    };
    let mut about = flag.help.to_owned();
    let is_on = flag.kind == Kind::Bool && flag.default == "true";
    if (flag.kind != Kind::Bool || is_on) && !matches!(flag.default, "" | "false") {
        let _ = write!(about, " [default: {}]", flag.default);
    }
    if !flag.beats_file {
        about.push_str(" [file]");
    }
    if let Some(instead) = flag.deprecated {
        let _ = write!(about, " (deprecated: use --{instead})");
    }
    let _ = write!(
        text,
        "  {}{}{value}\n{}",
        short.unwrap_or_default(),
        names.join(", "),
        hanging(INDENT, &about)
    );
}
