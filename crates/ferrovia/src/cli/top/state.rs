//! What is on the screen and what keys make of it. Knows neither terminal nor daemon.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

use super::data::{Data, Row, Wanted};

/// The columns one can sort by, in the order in which `s` goes through them.
const SORTS: [&str; 6] = [
    "-rate",
    "-connections",
    "-refused",
    "-endpoints",
    "-state",
    "name",
];
/// How far a page goes.
const PAGE: usize = 20;
/// The longest filter that can be typed.
const LONGEST_FILTER: usize = 200;

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    /// Something else is wanted of the daemon.
    Ask,
    Quit,
}

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct State {
    sort: String,
    filter: String,
    /// What is being typed in place of the filter.
    typing: Option<String>,
    /// The service whose endpoints are shown.
    open: Option<String>,
    data: Data,
    /// Why there is nothing new.
    lost: Option<String>,
    pub(super) table: TableState,
}

impl State {
    pub(super) fn new(sort: String, filter: String) -> Self {
        Self {
            sort,
            filter,
            typing: None,
            open: None,
            data: Data::default(),
            lost: None,
            table: TableState::default().with_selected(0),
        }
    }

    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            sort: self.sort.clone(),
            filter: self.filter.clone(),
            service: self.open.clone(),
        }
    }

    /// Takes in what the daemon said. The selection stays where it is, as the order may change under it.
    pub(super) fn take(&mut self, data: Data) {
        self.data = data;
        self.lost = None;
        self.select(self.selected());
    }

    pub(super) fn lost(&mut self, why: String) {
        self.lost = Some(why);
    }

    pub(super) fn data(&self) -> &Data {
        &self.data
    }

    pub(super) fn sort(&self) -> &str {
        &self.sort
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn typing(&self) -> Option<&str> {
        self.typing.as_deref()
    }

    pub(super) fn open(&self) -> Option<&str> {
        self.open.as_deref()
    }

    pub(super) fn why_lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Act {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Act::Quit;
        }
        if self.typing.is_some() {
            return self.type_key(key.code);
        }
        let at = self.selected();
        match key.code {
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Char('/') => self.typing = Some(self.filter.clone()),
            KeyCode::Char('s') => return self.next_sort(),
            KeyCode::Char('r') => return self.reverse(),
            KeyCode::Enter => return self.open_selected(),
            KeyCode::Esc if self.open.take().is_some() => {}
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                return Act::Ask;
            }
            KeyCode::Down | KeyCode::Char('j') => self.select(at + 1),
            KeyCode::Up | KeyCode::Char('k') => self.select(at.saturating_sub(1)),
            KeyCode::PageDown => self.select(at + PAGE),
            KeyCode::PageUp => self.select(at.saturating_sub(PAGE)),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            _ => {}
        }
        if self.open.is_some() && self.selected() != at {
            return self.open_selected();
        }
        Act::Nothing
    }

    fn type_key(&mut self, code: KeyCode) -> Act {
        let Some(text) = &mut self.typing else {
            return Act::Nothing;
        };
        match code {
            KeyCode::Char(c) if text.len() < LONGEST_FILTER => text.push(c),
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Esc => self.typing = None,
            KeyCode::Enter => {
                self.filter = self.typing.take().unwrap_or_default();
                self.select(0);
                return Act::Ask;
            }
            _ => {}
        }
        Act::Nothing
    }

    fn next_sort(&mut self) -> Act {
        let at = SORTS.iter().position(|sort| *sort == self.sort);
        let next = at.map_or(0, |at| (at + 1) % SORTS.len());
        SORTS[next].clone_into(&mut self.sort);
        Act::Ask
    }

    fn reverse(&mut self) -> Act {
        self.sort = match self.sort.strip_prefix('-') {
            Some(column) => column.to_owned(),
            None => format!("-{}", self.sort),
        };
        Act::Ask
    }

    fn open_selected(&mut self) -> Act {
        self.open = self.data.services.rows.get(self.selected()).map(Row::key);
        Act::Ask
    }

    fn selected(&self) -> usize {
        self.table.selected().unwrap_or_default()
    }

    fn select(&mut self, at: usize) {
        let last = self.data.services.rows.len().saturating_sub(1);
        self.table.select(Some(at.min(last)));
    }
}
