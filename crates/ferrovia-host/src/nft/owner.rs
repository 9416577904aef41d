//! A table that marks which process writes rules in this network namespace.
//!
//! The kernel gives such a table (`NFT_TABLE_F_OWNER`, since Linux 5.12) to the connection that made it: only that connection can change it, it
//! goes when the connection closes, however the process ended, and making it needs CAP_NET_ADMIN. It has no chains, so no packet meets it.

use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::nf_tables::{
    NFT_MSG_GETTABLE, NFT_TABLE_F_OWNER, NFTA_TABLE_FLAGS, NFTA_TABLE_NAME, NFTA_TABLE_USERDATA,
};
use ferrovia_netlink::{self as netlink, Attr, Message};

use super::encode::Encoder;
use super::{Error, Nft, decode, failed, fixed_header, message_type, userdata};

/// The table's name, in the family ip: every kernel with nf_tables has that one.
const TABLE: &str = "ferrovia-owner";
const FAMILY: Family = Family::V4;

/// What came of a claim.
#[derive(Debug)]
pub(crate) enum TableClaim {
    /// It is ours for as long as the connection is open.
    Ours(Nft),
    /// Another process has it; its description.
    Taken(String),
    /// This kernel has no tables with owners.
    Unsupported,
}

impl Nft {
    /// Makes the table, unless another process has it.
    pub(crate) fn claim(mut self, description: &str) -> Result<TableClaim, Error> {
        let broken = failed("claim this network namespace");
        loop {
            match self.table_owner()? {
                Some(TableOwner::Process(description)) => {
                    return Ok(TableClaim::Taken(description));
                }
                // Made by hand, or loaded from a listing: nothing of ours depends on it.
                Some(TableOwner::Unowned) => self.change(|encoder| encoder.delete_table(TABLE))?,
                None => {}
            }
            let made = self.change(|encoder| encoder.add_owned_table(TABLE, description));
            match made.as_ref().map_err(Error::errno) {
                Ok(()) => return Ok(TableClaim::Ours(self)),
                // Another process was faster: EPERM if the table belongs to it.
                Err(Some(libc::EPERM | libc::EEXIST)) => {
                    if self.table_owner()?.is_none() && made.is_err() {
                        // Without the right to make tables it would never come to be.
                        made?;
                    }
                }
                Err(Some(libc::EINVAL | libc::EOPNOTSUPP)) => return Ok(TableClaim::Unsupported),
                Err(_) => {
                    return made
                        .map(|()| TableClaim::Unsupported)
                        .map_err(|error| match error {
                            Error::Netlink { cause, .. } => broken(cause),
                            other => other,
                        });
                }
            }
        }
    }

    /// The description of the process that has the table, if one does.
    pub(crate) fn claimed_by(&mut self) -> Result<Option<String>, Error> {
        Ok(match self.table_owner()? {
            Some(TableOwner::Process(description)) => Some(description),
            Some(TableOwner::Unowned) | None => None,
        })
    }

    fn table_owner(&mut self) -> Result<Option<TableOwner>, Error> {
        let found = self.socket.query(
            message_type(NFT_MSG_GETTABLE),
            |w| {
                w.raw(&fixed_header(Some(FAMILY)));
                w.text(NFTA_TABLE_NAME, TABLE);
            },
            TableOwner::read,
        );
        match found {
            Ok(owner) => Ok(Some(owner)),
            Err(netlink::Error::Refused(refusal)) if refusal.errno == libc::ENOENT => Ok(None),
            Err(error) => Err(failed("read the owner of this network namespace")(error)),
        }
    }

    fn change(&mut self, write: impl FnOnce(&mut Encoder)) -> Result<(), Error> {
        let broken = failed("claim this network namespace");
        let mut encoder = Encoder::begin(FAMILY, self.socket.next_seq());
        write(&mut encoder);
        let batch = encoder.end().map_err(|error| broken(error.into()))?;
        let (refusals, _) = self.send(&batch).map_err(broken)?;
        match refusals.into_iter().next() {
            None => Ok(()),
            Some((_, refusal)) => Err(broken(netlink::Error::Refused(refusal))),
        }
    }
}

/// Whose the table is.
enum TableOwner {
    Process(String),
    Unowned,
}

impl TableOwner {
    fn read(message: &Message<'_>) -> Option<Self> {
        let attrs = decode::attrs(message);
        attrs.get(NFTA_TABLE_NAME)?;
        if attrs.get(NFTA_TABLE_FLAGS).and_then(Attr::be32)? & NFT_TABLE_F_OWNER == 0 {
            return Some(Self::Unowned);
        }
        let notes = attrs.get(NFTA_TABLE_USERDATA).map(|notes| notes.value);
        let comment = notes.and_then(userdata::comment).unwrap_or_default();
        Some(Self::Process(comment.to_owned()))
    }
}
