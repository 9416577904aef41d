//! Hears of commits that others make to tables we care about.
//!
//! The kernel tells about every object of every commit. News of our own commits is dropped by a
//! filter in the kernel, so that a transaction of a hundred thousand elements neither floods the
//! listener nor makes it lose other people's.

use std::collections::{BTreeSet, VecDeque};

use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::nf_tables::NFT_MSG_NEWGEN;
use ferrovia_netlink::uapi::nfnetlink::{NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES};
use ferrovia_netlink::{self as netlink, Message, Protocol, Socket, messages, nfnetlink};

use super::{Error, decode, failed, family_number, message_type};

/// Something happened that was not our doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A commit touched a table.
    Table {
        /// The table's family.
        family: Family,
        /// Its name.
        table: String,
    },
    /// There was more news than we could hold. What it was is unknown: everything must be verified.
    Lost,
}

/// A listener to other people's commits.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    tables: Vec<String>,
    /// Tables touched by the commit that is being told.
    touched: BTreeSet<(Family, String)>,
    /// Commits told in full, not yet handed out.
    changes: VecDeque<Change>,
}

impl Monitor {
    /// Listens for commits to tables of these names by anyone but the socket with port `own_port`.
    ///
    /// # Errors
    /// If we may not listen or a system call fails.
    pub fn open(own_port: u32, tables: &[&str]) -> Result<Self, Error> {
        let broken = failed("listen for changes of the ruleset");
        let socket = Socket::open(Protocol::Netfilter).map_err(broken)?;
        socket.disable_timeout().map_err(broken)?;
        socket.ignore_port(own_port).map_err(broken)?;
        socket.join(NFNLGRP_NFTABLES).map_err(broken)?;
        let tables = tables.iter().map(|&name| name.to_owned()).collect();
        Ok(Self {
            socket,
            tables,
            touched: BTreeSet::new(),
            changes: VecDeque::new(),
        })
    }

    /// Waits for the next change, however long it takes.
    ///
    /// # Errors
    /// If the conversation breaks; the monitor should be opened anew then.
    pub fn wait(&mut self) -> Result<Change, Error> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            match self.hear() {
                Ok(()) => {}
                Err(netlink::Error::Overrun) => return Ok(Change::Lost),
                Err(error) => return Err(failed("hear of changes of the ruleset")(error)),
            }
        }
    }

    fn hear(&mut self) -> Result<(), netlink::Error> {
        match self.socket.receive() {
            Ok(datagram) => {
                for message in messages(datagram) {
                    note(&message, &self.tables, &mut self.touched, &mut self.changes);
                }
                Ok(())
            }
            Err(netlink::Error::Overrun) => {
                // Whoever verifies everything now must not miss what happens while it does.
                self.socket.drain()?;
                self.touched.clear();
                Err(netlink::Error::Overrun)
            }
            Err(error) => Err(error),
        }
    }
}

/// Keeps one message of a commit in mind, or, if it is the last one, hands out what the commit
/// touched.
pub(super) fn note(
    message: &Message<'_>,
    tables: &[String],
    touched: &mut BTreeSet<(Family, String)>,
    changes: &mut VecDeque<Change>,
) {
    if message.kind == message_type(NFT_MSG_NEWGEN) {
        let done = std::mem::take(touched).into_iter();
        changes.extend(done.map(|(family, table)| Change::Table { family, table }));
    } else if nfnetlink::subsystem(message.kind) == NFNL_SUBSYS_NFTABLES {
        let family = Family::ALL
            .into_iter()
            .find(|family| message.body.first() == Some(&family_number(*family)));
        let table =
            decode::table_of(message).filter(|&name| tables.iter().any(|table| table == name));
        touched.extend(
            family
                .zip(table)
                .map(|(family, table)| (family, table.to_owned())),
        );
    }
}
