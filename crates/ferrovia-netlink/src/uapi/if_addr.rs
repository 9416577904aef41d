//! Attributes of addresses. `linux/if_addr.h`

uapi! {
    header: "linux/if_addr.h";

    IFA_ADDRESS: u16 = libc::IFA_ADDRESS;
    IFA_LOCAL: u16 = libc::IFA_LOCAL;
    IFA_CACHEINFO: u16 = libc::IFA_CACHEINFO;
    IFA_PROTO: u16 = 11;

    IFA_F_NODAD: u8 = libc::IFA_F_NODAD as u8;
}
