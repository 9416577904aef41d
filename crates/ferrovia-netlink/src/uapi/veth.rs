//! Attributes of pairs of links. `linux/veth.h`

uapi! {
    header: "linux/veth.h";

    VETH_INFO_PEER: u16 = 1;
}
