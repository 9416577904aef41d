//! `ferrovia man`: manual pages, one for the daemon and one for each command.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use clap_mangen::Man;

use super::COMMANDS;
use super::output::print;
use super::tree::tree;

/// Commands for administrators.
const SECTION: &str = "8";
const MANUAL: &str = "Ferrovia";

/// How the daemon is started, and everything else.
const SYNOPSIS: &str = "\
\\fBferrovia\\fR [\\fBrun\\fR] [\\fIFLAGS\\fR]
.br
\\fBferrovia\\fR \\fICOMMAND\\fR [\\fIFLAGS\\fR]";

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
    for (name, short) in COMMANDS {
        tree = tree.mut_subcommand(name, |command| {
            let long = command.get_about().cloned().unwrap_or_default();
            command.long_about(long).about(short)
        });
    }
    // Hands flags that every command has down to each of them.
    tree.build();
    let commands = tree.get_subcommands().map(|command| {
        let name = format!("ferrovia-{}", command.get_name());
        page(command.clone().display_name(name), &synopsis(command))
    });
    let daemon = page(tree.clone().display_name("ferrovia"), SYNOPSIS);
    std::iter::once(daemon).chain(commands).collect()
}

/// How a command is called. Its flags are explained below; all of them in one line would help nobody.
fn synopsis(command: &clap::Command) -> String {
    let mut line = format!("\\fBferrovia {}\\fR [\\fIFLAGS\\fR]", command.get_name());
    for value in command.get_positionals() {
        let name = value.get_value_names().unwrap_or_default().join(" ");
        line += &if value.is_required_set() {
            format!(" \\fI{name}\\fR")
        } else {
            format!(" [\\fI{name}\\fR]")
        };
    }
    line
}

fn page(command: clap::Command, synopsis: &str) -> anyhow::Result<(String, Vec<u8>)> {
    let man = Man::new(command.mut_arg("help", |help| help.help("Print help")))
        .section(SECTION)
        .manual(MANUAL)
        .source(concat!("ferrovia ", env!("CARGO_PKG_VERSION")));
    let name = man.get_filename();
    let page =
        render(&man, synopsis).with_context(|| format!("cannot write the manual page {name}"))?;
    Ok((name, page))
}

fn render(man: &Man, synopsis: &str) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    writeln!(page, ".SH SYNOPSIS\n{synopsis}")?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if synopsis == SYNOPSIS {
        man.render_subcommands_section(&mut page)?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_the_daemon_and_each_command() {
        let pages = pages().unwrap();
        assert_eq!(pages.len(), 1 + COMMANDS.len());
        let text = |name: &str| {
            let page = pages.iter().find(|(file, _)| file == name);
            String::from_utf8(page.unwrap().1.clone()).unwrap()
        };
        let daemon = text("ferrovia.8");
        assert!(daemon.contains("cluster\\-cidr"), "{daemon}");
        assert!(text("ferrovia-run.8").contains("cluster\\-cidr"));
        for (name, short) in COMMANDS {
            let page = text(&format!("ferrovia-{name}.8"));
            let start = format!(".SH SYNOPSIS\n\\fBferrovia {name}\\fR");
            assert!(page.contains(&start), "{page}");
            assert!(page.contains(short) && daemon.contains(short), "{page}");
        }
        let trace = text("ferrovia-trace.8");
        assert!(trace.contains("\\fIPACKET\\fR"), "{trace}");
    }
}
