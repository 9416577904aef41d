//! States of tracked TCP connections. `linux/netfilter/nf_conntrack_tcp.h`

uapi! {
    header: "linux/netfilter/nf_conntrack_tcp.h";

    TCP_CONNTRACK_ESTABLISHED: u8 = 3;
}
