//! `ferrovia man`: manual pages, one for the daemon and one for each command.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use clap_mangen::Man;

use super::output::print;
use super::tree::tree;

/// Commands for administrators.
const SECTION: &str = "8";
const MANUAL: &str = "Ferrovia";

/// Flags of `ferrovia man`.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The folder to write them into; it is made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes all pages, and says which.
pub(super) fn man(args: &ManArgs) -> anyhow::Result<()> {
    let folder = &args.folder;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for (name, page) in pages()? {
        let path = folder.join(name);
        write(&path, &page)?;
        print(format_args!("{}\n", path.display()))?;
    }
    Ok(())
}

fn write(path: &Path, page: &[u8]) -> anyhow::Result<()> {
    fs::write(path, page)
        .with_context(|| format!("cannot write the manual page {}", path.display()))
}

/// File names and contents.
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut tree = tree();
    // Hands flags that every command has down to each of them.
    tree.build();
    let commands = tree.get_subcommands().map(|command| {
        let name = format!("ferrovia-{}", command.get_name());
        let usage = format!("ferrovia {}", command.get_name());
        page(command.clone().bin_name(usage).display_name(name))
    });
    let daemon = page(tree.clone().display_name("ferrovia"));
    std::iter::once(daemon).chain(commands).collect()
}

fn page(command: clap::Command) -> anyhow::Result<(String, Vec<u8>)> {
    let man = Man::new(command.disable_version_flag(true))
        .section(SECTION)
        .manual(MANUAL)
        .source(concat!("ferrovia ", env!("CARGO_PKG_VERSION")));
    let name = man.get_filename();
    let mut page = Vec::new();
    man.render(&mut page)
        .with_context(|| format!("cannot write the manual page {name}"))?;
    Ok((name, page))
}

#[cfg(test)]
mod tests {
    use super::super::COMMANDS;
    use super::*;

    #[test]
    fn there_is_a_page_for_the_daemon_and_each_command() {
        let pages = pages().unwrap();
        assert_eq!(pages.len(), 1 + COMMANDS.len());
        let text = |name: &str| {
            let page = pages.iter().find(|(file, _)| file == name);
            String::from_utf8(page.unwrap().1.clone()).unwrap()
        };
        assert!(text("ferrovia.8").contains("cluster\\-cidr"));
        assert!(text("ferrovia-run.8").contains("cluster\\-cidr"));
        for (name, _) in COMMANDS {
            let page = text(&format!("ferrovia-{name}.8"));
            assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
        }
    }
}
