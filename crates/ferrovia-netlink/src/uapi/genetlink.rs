//! Families that are registered by name. `linux/genetlink.h`

uapi! {
    header: "linux/genetlink.h";

    GENL_ID_CTRL: u16 = libc::GENL_ID_CTRL as u16;

    CTRL_CMD_GETFAMILY: u8 = libc::CTRL_CMD_GETFAMILY as u8;

    CTRL_ATTR_FAMILY_ID: u16 = libc::CTRL_ATTR_FAMILY_ID as u16;
    CTRL_ATTR_FAMILY_NAME: u16 = libc::CTRL_ATTR_FAMILY_NAME as u16;
}
