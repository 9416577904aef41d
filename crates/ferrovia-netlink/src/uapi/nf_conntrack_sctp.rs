//! States of tracked SCTP associations. `linux/netfilter/nf_conntrack_sctp.h`

uapi! {
    header: "linux/netfilter/nf_conntrack_sctp.h";

    SCTP_CONNTRACK_ESTABLISHED: u8 = 4;
}
