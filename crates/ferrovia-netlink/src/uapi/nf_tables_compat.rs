//! x_tables matches and targets inside nf_tables rules. `linux/netfilter/nf_tables_compat.h`

uapi! {
    header: "linux/netfilter/nf_tables_compat.h";

    NFTA_TARGET_NAME: u16 = 1;
    NFTA_TARGET_INFO: u16 = 3;
}
