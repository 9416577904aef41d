//! Generic netlink: the fixed header `genlmsghdr`, and how to find a family by its name.

use crate::uapi::genetlink::{
    CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, CTRL_CMD_GETFAMILY, GENL_ID_CTRL,
};
use crate::{Attrs, Error, Socket};

/// Length of `struct genlmsghdr`.
pub const HEADER_LEN: usize = 4;
/// The version of the controller's interface.
const CONTROLLER_VERSION: u8 = 1;

/// A `struct genlmsghdr`.
pub const fn header(command: u8, version: u8) -> [u8; HEADER_LEN] {
    [command, version, 0, 0]
}

/// The message type that the kernel assigned to a family, or none if the kernel has no such family.
///
/// # Errors
/// If the request fails for another reason.
pub fn family_id(socket: &mut Socket, name: &str) -> Result<Option<u16>, Error> {
    let reply = socket.query(
        GENL_ID_CTRL,
        |w| {
            w.raw(&header(CTRL_CMD_GETFAMILY, CONTROLLER_VERSION));
            w.text(CTRL_ATTR_FAMILY_NAME, name);
        },
        |message| {
            Attrs::of(message, HEADER_LEN)
                .get(CTRL_ATTR_FAMILY_ID)?
                .u16()
        },
    );
    match reply {
        Ok(id) => Ok(Some(id)),
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
