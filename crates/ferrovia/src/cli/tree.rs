//! The whole command line as one value, for what is generated from it: the commands as clap knows them, and the daemon, whose flags clap
//! does not read, from the table of its flags.

use clap::{Arg, ArgAction, CommandFactory as _, ValueHint};

use super::Cli;
use crate::config::flags::{Flag, GROUPS, Kind};

/// Flags that clap has for every command.
const EVERYWHERE: [&str; 2] = ["help", "v"];

/// The program with all its commands; without a command it is the daemon, so it has the daemon's flags too.
pub(super) fn tree() -> clap::Command {
    let run = clap::Command::new("run")
        .about("Run the proxy; the same as no command")
        .disable_version_flag(true)
        .args(daemon_flags());
    Cli::command()
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .subcommand_required(false)
        .args(daemon_flags())
        .subcommand(run.display_order(0))
}

fn daemon_flags() -> impl Iterator<Item = Arg> {
    GROUPS
        .iter()
        .flat_map(|(heading, flags)| flags.iter().map(|flag| (*heading, flag)))
        .filter(|(_, flag)| !EVERYWHERE.contains(&flag.name))
        .map(|(heading, flag)| described(heading, flag))
}

fn described(heading: &'static str, flag: &Flag) -> Arg {
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .visible_aliases(flag.aliases)
        .help_heading(heading)
        .help(sentence(flag));
    let arg = match flag.short {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    match flag.kind {
        Kind::Bool => arg.action(ArgAction::SetTrue),
        Kind::Optional(value) => arg.value_name(value).num_args(0..=1).require_equals(true),
        Kind::Value(value) => arg.value_name(value).value_hint(hint(value)),
        Kind::List(value) => arg.value_name(value).action(ArgAction::Append),
    }
}

/// What it does, its default, and what to use in its place.
fn sentence(flag: &Flag) -> String {
    let mut text = flag.help.to_owned();
    if !matches!(flag.default, "" | "false") {
        text.push_str(&format!(" [default: {}]", flag.default));
    }
    if let Some(instead) = flag.deprecated {
        text.push_str(&format!(" (deprecated: use --{instead})"));
    }
    text
}

/// What a shell should offer for a value of this name.
fn hint(value: &str) -> ValueHint {
    match value {
        "FILE" | "PATH" => ValueHint::FilePath,
        "DIR" => ValueHint::DirPath,
        _ => ValueHint::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::COMMANDS;
    use super::*;
    use crate::config::flags::table;

    /// Clap's own rules: no flag or letter twice, and the like.
    #[test]
    fn the_tree_is_sound() {
        tree().debug_assert();
    }

    #[test]
    fn every_command_and_every_flag_is_there() {
        let tree = tree();
        let mut commands: Vec<_> = tree
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        commands.sort_unstable();
        let mut listed: Vec<_> = COMMANDS.iter().map(|(name, _)| *name).collect();
        listed.sort_unstable();
        assert_eq!(commands, listed);

        let run = tree.find_subcommand("run").unwrap();
        for flag in table::flags().filter(|flag| !EVERYWHERE.contains(&flag.name)) {
            for command in [&tree, run] {
                let mut arguments = command.get_arguments();
                assert!(
                    arguments.any(|arg| arg.get_long() == Some(flag.name)),
                    "{} lacks --{}",
                    command.get_name(),
                    flag.name
                );
            }
        }
    }
}
