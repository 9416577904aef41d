//! Directions of tracked connections. `linux/netfilter/nf_conntrack_tuple_common.h`

uapi! {
    header: "linux/netfilter/nf_conntrack_tuple_common.h";

    IP_CT_DIR_ORIGINAL: u8 = 0;
    IP_CT_DIR_REPLY: u8 = 1;
}
