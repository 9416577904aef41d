//! `ferrovia completions`: what a shell needs to complete our commands and flags.

use clap::Args;
use clap_complete::Shell;

use super::output::print;
use super::tree::tree;

/// Flags of `ferrovia completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell to print them for
    shell: Shell,
}

/// Prints a script for the shell to load.
pub(super) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    Ok(print(script(args.shell))?)
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree(), "ferrovia", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_learns_of_commands_and_of_the_daemons_flags() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for word in ["trace", "doctor", "cluster-cidr", "userspace-portals"] {
                assert!(script.contains(word), "{shell}: no {word}");
            }
        }
    }
}
