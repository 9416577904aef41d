//! Constants of the kernel's UAPI headers, one module per header and under the header's names.
//!
//! A value that `libc` has comes from there. Every other value is a literal, and a test compares all of them with the installed headers.
//! The type is the one that the constant has inside a message.
#![allow(missing_docs, reason = "the kernel's headers document their constants")]

/// Declares the constants of one header. The list of names and values is for the test.
macro_rules! uapi {
    (header: $header:literal; $($name:ident: $type:ty = $value:expr;)*) => {
        $(pub const $name: $type = $value;)*

        #[cfg(test)]
        pub(super) const HEADER: super::Header = super::Header {
            path: $header,
            constants: &[$((stringify!($name), $name as i64)),*],
        };
    };
}

pub mod genetlink;
pub mod if_addr;
pub mod if_link;
pub mod ip_set;
pub mod ip_set_hash;
pub mod ip_vs;
pub mod neighbour;
pub mod netlink;
pub mod nf_conntrack_common;
pub mod nf_conntrack_sctp;
pub mod nf_conntrack_tcp;
pub mod nf_conntrack_tuple_common;
pub mod nf_nat;
pub mod nf_tables;
pub mod nf_tables_compat;
pub mod nfnetlink;
pub mod nfnetlink_acct;
pub mod nfnetlink_conntrack;
pub mod rtnetlink;
pub mod veth;
pub mod xt_ct;

#[cfg(test)]
struct Header {
    path: &'static str,
    constants: &'static [(&'static str, i64)],
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    const HEADERS: [Header; 21] = [
        genetlink::HEADER,
        if_addr::HEADER,
        if_link::HEADER,
        ip_set::HEADER,
        ip_set_hash::HEADER,
        ip_vs::HEADER,
        neighbour::HEADER,
        netlink::HEADER,
        nf_conntrack_common::HEADER,
        nf_conntrack_sctp::HEADER,
        nf_conntrack_tcp::HEADER,
        nf_conntrack_tuple_common::HEADER,
        nf_nat::HEADER,
        nf_tables::HEADER,
        nf_tables_compat::HEADER,
        nfnetlink::HEADER,
        nfnetlink_acct::HEADER,
        nfnetlink_conntrack::HEADER,
        rtnetlink::HEADER,
        veth::HEADER,
        xt_ct::HEADER,
    ];

    /// The C compiler, which cargo needs as its linker anyway, compares every value with the system's headers.
    #[test]
    fn values_equal_those_of_the_system_headers() {
        let mut source = "#include <netinet/in.h>\n".to_owned();
        for header in &HEADERS {
            writeln!(source, "#include <{}>", header.path).unwrap();
        }
        for (name, value) in HEADERS.iter().flat_map(|header| header.constants) {
            // Some are negative as an int in C and unsigned in a message.
            writeln!(
                source,
                "_Static_assert((unsigned int)({name}) == {value}u, \"{name}\");"
            )
            .unwrap();
        }
        let mut compiler = Command::new("cc")
            .args(["-fsyntax-only", "-x", "c", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = compiler.stdin.take().unwrap();
        input.write_all(source.as_bytes()).unwrap();
        drop(input);
        let output = compiler.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    }
}
