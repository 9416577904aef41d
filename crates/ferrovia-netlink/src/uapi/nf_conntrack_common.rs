//! States of tracked connections. `linux/netfilter/nf_conntrack_common.h`

uapi! {
    header: "linux/netfilter/nf_conntrack_common.h";

    IPS_SEEN_REPLY: u32 = 0x2;
    IPS_ASSURED: u32 = 0x4;
    IPS_CONFIRMED: u32 = 0x8;
    IPS_SRC_NAT_DONE: u32 = 0x80;
    IPS_DST_NAT_DONE: u32 = 0x100;
}
