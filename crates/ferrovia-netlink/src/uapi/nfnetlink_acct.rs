//! Named counters. `linux/netfilter/nfnetlink_acct.h`

uapi! {
    header: "linux/netfilter/nfnetlink_acct.h";

    NFNL_MSG_ACCT_NEW: u8 = 0;
    NFNL_MSG_ACCT_GET: u8 = 1;

    NFACCT_NAME: u16 = 1;
    NFACCT_PKTS: u16 = 2;
}
