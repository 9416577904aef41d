//! What the subsystems of netfilter share. `linux/netfilter/nfnetlink.h`

uapi! {
    header: "linux/netfilter/nfnetlink.h";

    NFNL_SUBSYS_CTNETLINK: u8 = libc::NFNL_SUBSYS_CTNETLINK as u8;
    NFNL_SUBSYS_IPSET: u8 = libc::NFNL_SUBSYS_IPSET as u8;
    NFNL_SUBSYS_ACCT: u8 = libc::NFNL_SUBSYS_ACCT as u8;
    NFNL_SUBSYS_NFTABLES: u8 = libc::NFNL_SUBSYS_NFTABLES as u8;

    NFNL_MSG_BATCH_BEGIN: u16 = libc::NFNL_MSG_BATCH_BEGIN as u16;
    NFNL_MSG_BATCH_END: u16 = libc::NFNL_MSG_BATCH_END as u16;

    NFNLGRP_NFTABLES: u32 = libc::NFNLGRP_NFTABLES as u32;
}
