//! Connection tracking. `linux/netfilter/nfnetlink_conntrack.h`

uapi! {
    header: "linux/netfilter/nfnetlink_conntrack.h";

    IPCTNL_MSG_CT_NEW: u8 = 0;
    IPCTNL_MSG_CT_GET: u8 = 1;
    IPCTNL_MSG_CT_DELETE: u8 = 2;
    IPCTNL_MSG_CT_GET_STATS: u8 = 5;

    CTA_STATS_GLOBAL_ENTRIES: u16 = 1;

    CTA_TUPLE_ORIG: u16 = 1;
    CTA_TUPLE_REPLY: u16 = 2;
    CTA_STATUS: u16 = 3;
    CTA_PROTOINFO: u16 = 4;
    CTA_TIMEOUT: u16 = 7;
    CTA_MARK: u16 = 8;
    CTA_ID: u16 = 12;
    CTA_ZONE: u16 = 18;
    CTA_MARK_MASK: u16 = 21;
    CTA_FILTER: u16 = 25;

    CTA_TUPLE_IP: u16 = 1;
    CTA_TUPLE_PROTO: u16 = 2;

    CTA_IP_V4_SRC: u16 = 1;
    CTA_IP_V4_DST: u16 = 2;
    CTA_IP_V6_SRC: u16 = 3;
    CTA_IP_V6_DST: u16 = 4;

    CTA_PROTO_NUM: u16 = 1;
    CTA_PROTO_SRC_PORT: u16 = 2;
    CTA_PROTO_DST_PORT: u16 = 3;

    CTA_PROTOINFO_TCP: u16 = 1;
    CTA_PROTOINFO_TCP_STATE: u16 = 1;
    CTA_PROTOINFO_SCTP: u16 = 3;
    CTA_PROTOINFO_SCTP_STATE: u16 = 1;
    CTA_PROTOINFO_SCTP_VTAG_ORIGINAL: u16 = 2;
    CTA_PROTOINFO_SCTP_VTAG_REPLY: u16 = 3;

    CTA_FILTER_ORIG_FLAGS: u16 = 1;
    CTA_FILTER_REPLY_FLAGS: u16 = 2;
}
