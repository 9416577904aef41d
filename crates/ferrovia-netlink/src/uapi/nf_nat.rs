//! Address translation. `linux/netfilter/nf_nat.h`

uapi! {
    header: "linux/netfilter/nf_nat.h";

    NF_NAT_RANGE_MAP_IPS: u32 = 1;
    NF_NAT_RANGE_PROTO_SPECIFIED: u32 = 2;
    NF_NAT_RANGE_PROTO_RANDOM_FULLY: u32 = 16;
}
