//! `ferrovia top`: services, live, in a terminal. Asks the running daemon; what is drawn is in `draw.rs`, what keys do in `state.rs`.

mod data;
mod draw;
mod once;
mod state;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::data::fetch;
use self::state::{Act, State};
use super::output::print;
use crate::config::ADMIN_SOCKET;
use crate::serve::admin::client::Client;

/// How often the daemon is asked; it takes a sample of the kernel's counts no more often.
const BEAT: Duration = Duration::from_secs(1);

/// Flags of `ferrovia top`.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Show only services that match: a part of a name or address, a port, ns:NAME, type:NodePort, is:troubled, is:down
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,

    /// Order: name, endpoints, connections, rate, refused or state; with - in front the largest first
    #[arg(
        long,
        value_name = "COLUMN",
        default_value = "-rate",
        allow_hyphen_values = true
    )]
    sort: String,

    /// Print a table once, then end
    #[arg(long)]
    once: bool,

    /// Socket of the daemon
    #[arg(long, value_name = "PATH", default_value = ADMIN_SOCKET)]
    admin_socket: PathBuf,
}

pub(super) fn top(args: TopArgs) -> anyhow::Result<()> {
    let client = Client::new(args.admin_socket);
    let mut state = State::new(args.sort, args.filter.join(" "));
    // A rate takes two samples. The first also shows whether there is a daemon, before the terminal is taken.
    state.take(fetch(&client, &state.wanted())?);
    if args.once {
        std::thread::sleep(BEAT);
        state.take(fetch(&client, &state.wanted())?);
        return Ok(print(once::table(state.data()))?);
    }
    ensure!(
        std::io::stdout().is_terminal(),
        "there is no terminal to draw on; use --once for a table"
    );
    // It puts the terminal back even if something panics.
    let mut terminal = ratatui::try_init()?;
    let ended = follow(&client, &mut terminal, &mut state);
    ratatui::restore();
    ended
}

fn follow(
    client: &Client,
    terminal: &mut DefaultTerminal,
    state: &mut State,
) -> anyhow::Result<()> {
    let mut due = Instant::now() + BEAT;
    loop {
        terminal.draw(|frame| draw::draw(frame, state))?;
        let left = due.saturating_duration_since(Instant::now());
        let act = if event::poll(left)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => state.press(key),
                _ => Act::Nothing,
            }
        } else {
            Act::Ask
        };
        match act {
            Act::Quit => return Ok(()),
            Act::Nothing => {}
            Act::Ask => {
                // A daemon that restarts is waited for, with what was last known on the screen.
                match fetch(client, &state.wanted()) {
                    Ok(data) => state.take(data),
                    Err(error) => state.lost(error.to_string()),
                }
                due = Instant::now() + BEAT;
            }
        }
    }
}
