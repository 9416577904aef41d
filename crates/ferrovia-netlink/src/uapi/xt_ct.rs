//! The x_tables target `CT`. `linux/netfilter/xt_CT.h`

uapi! {
    header: "linux/netfilter/xt_CT.h";

    XT_CT_NOTRACK: u16 = 1;
}
