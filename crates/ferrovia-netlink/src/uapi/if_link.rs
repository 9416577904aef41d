//! Attributes of links. `linux/if_link.h`

uapi! {
    header: "linux/if_link.h";

    IFLA_IFNAME: u16 = 3;
    IFLA_MTU: u16 = 4;
    IFLA_MASTER: u16 = 10;
    IFLA_TXQLEN: u16 = 13;
    IFLA_OPERSTATE: u16 = 16;
    IFLA_LINKINFO: u16 = 18;
    IFLA_NET_NS_FD: u16 = 28;

    IFLA_INFO_KIND: u16 = 1;
    IFLA_INFO_DATA: u16 = 2;
    IFLA_INFO_SLAVE_KIND: u16 = 4;
    IFLA_INFO_SLAVE_DATA: u16 = 5;

    IFLA_BRPORT_MODE: u16 = 4;
}
