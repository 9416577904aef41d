//! Hash types of IP sets. `linux/netfilter/ipset/ip_set_hash.h`

uapi! {
    header: "linux/netfilter/ipset/ip_set_hash.h";

    IPSET_ERR_HASH_FULL: i32 = 4352;
}
