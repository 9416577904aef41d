//! Attributes of neighbours. `linux/neighbour.h`

uapi! {
    header: "linux/neighbour.h";

    NDA_DST: u16 = libc::NDA_DST;
    NDA_LLADDR: u16 = libc::NDA_LLADDR;

    NUD_PERMANENT: u16 = libc::NUD_PERMANENT;
}
