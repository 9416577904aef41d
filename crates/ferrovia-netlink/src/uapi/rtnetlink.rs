//! Links, addresses, routes and neighbours. `linux/rtnetlink.h`

uapi! {
    header: "linux/rtnetlink.h";

    RTM_NEWLINK: u16 = libc::RTM_NEWLINK;
    RTM_DELLINK: u16 = libc::RTM_DELLINK;
    RTM_GETLINK: u16 = libc::RTM_GETLINK;
    RTM_NEWADDR: u16 = libc::RTM_NEWADDR;
    RTM_DELADDR: u16 = libc::RTM_DELADDR;
    RTM_GETADDR: u16 = libc::RTM_GETADDR;
    RTM_NEWROUTE: u16 = libc::RTM_NEWROUTE;
    RTM_GETROUTE: u16 = libc::RTM_GETROUTE;
    RTM_NEWNEIGH: u16 = libc::RTM_NEWNEIGH;

    RTA_DST: u16 = libc::RTA_DST;
    RTA_OIF: u16 = libc::RTA_OIF;
    RTA_GATEWAY: u16 = libc::RTA_GATEWAY;
    RTA_PREFSRC: u16 = libc::RTA_PREFSRC;

    RT_TABLE_MAIN: u8 = libc::RT_TABLE_MAIN;
    RTPROT_BOOT: u8 = libc::RTPROT_BOOT;
    RT_SCOPE_UNIVERSE: u8 = libc::RT_SCOPE_UNIVERSE;
    RT_SCOPE_LINK: u8 = libc::RT_SCOPE_LINK;
    RT_SCOPE_HOST: u8 = libc::RT_SCOPE_HOST;
    RTN_UNICAST: u8 = libc::RTN_UNICAST;
    RTN_LOCAL: u8 = libc::RTN_LOCAL;

    RTNH_F_ONLINK: u32 = 0x4;

    RTNLGRP_IPV4_IFADDR: u32 = libc::RTNLGRP_IPV4_IFADDR;
    RTNLGRP_IPV6_IFADDR: u32 = libc::RTNLGRP_IPV6_IFADDR;
}
