//! The message layer that all families share. `linux/netlink.h`

uapi! {
    header: "linux/netlink.h";

    NLM_F_REQUEST: u16 = libc::NLM_F_REQUEST as u16;
    NLM_F_ACK: u16 = libc::NLM_F_ACK as u16;
    NLM_F_DUMP_INTR: u16 = libc::NLM_F_DUMP_INTR as u16;
    NLM_F_DUMP: u16 = libc::NLM_F_DUMP as u16;
    NLM_F_NONREC: u16 = libc::NLM_F_NONREC as u16;
    NLM_F_EXCL: u16 = libc::NLM_F_EXCL as u16;
    NLM_F_CREATE: u16 = libc::NLM_F_CREATE as u16;
    NLM_F_APPEND: u16 = libc::NLM_F_APPEND as u16;
    NLM_F_CAPPED: u16 = libc::NLM_F_CAPPED as u16;
    NLM_F_ACK_TLVS: u16 = libc::NLM_F_ACK_TLVS as u16;

    NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
    NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;

    NLA_F_NESTED: u16 = libc::NLA_F_NESTED as u16;
    NLA_F_NET_BYTEORDER: u16 = libc::NLA_F_NET_BYTEORDER as u16;

    NLMSGERR_ATTR_MSG: u16 = 1;
    NLMSGERR_ATTR_OFFS: u16 = 2;
}
