//! What chains are called. People and tools look for these names, so they are kube-proxy's to the letter.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::desired::Endpoint;
use crate::dialect::iptables::{TableName, is_hashed_name, is_mark};
use crate::model::PortKey;

pub(in crate::plan) const SERVICES: &str = "KUBE-SERVICES";
pub(in crate::plan) const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
pub(in crate::plan) const NODE_PORTS: &str = "KUBE-NODEPORTS";
pub(in crate::plan) const POSTROUTING: &str = "KUBE-POSTROUTING";
pub(in crate::plan) const MARK_MASQ: &str = "KUBE-MARK-MASQ";
pub(in crate::plan) const MARK_DROP: &str = "KUBE-MARK-DROP";
pub(in crate::plan) const FORWARD: &str = "KUBE-FORWARD";
pub(in crate::plan) const FIREWALL: &str = "KUBE-FIREWALL";
pub(in crate::plan) const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";

/// The empty canary chain: if it is missing, another process flushed the tables.
pub const CANARY: &str = "KUBE-PROXY-CANARY";

/// The built-in chains that lead into ours, and ours that have fixed names.
pub fn fixed_names(table: TableName) -> (&'static [&'static str], &'static [&'static str]) {
    match table {
        TableName::Filter => (
            &["INPUT", "FORWARD", "OUTPUT"],
            &[
                SERVICES,
                EXTERNAL_SERVICES,
                NODE_PORTS,
                PROXY_FIREWALL,
                FIREWALL,
                FORWARD,
                CANARY,
            ],
        ),
        TableName::Nat => (
            &["PREROUTING", "OUTPUT", "POSTROUTING"],
            &[
                SERVICES,
                NODE_PORTS,
                POSTROUTING,
                MARK_MASQ,
                MARK_DROP,
                CANARY,
            ],
        ),
        TableName::Mangle => (&[], &[CANARY]),
    }
}

/// Whether a chain is one that this mode writes, by table and name.
pub fn is_own_chain(table: &str, name: &str) -> bool {
    let mut tables = TableName::ALL.into_iter();
    let of_table = tables.find(|of| of.as_str() == table);
    let is_fixed = of_table.is_some_and(|of| fixed_names(of).1.contains(&name));
    is_fixed || is_mark(table, name) || (table == TableName::Nat.as_str() && is_hashed_name(name))
}

/// The names of a service port's own chains.
#[derive(Clone, Debug)]
pub(super) struct PortNames {
    /// `namespace/name:port`, as comments have it.
    pub(super) port: String,
    /// The hash that makes chain names of a port unique.
    hash: String,
}

impl PortNames {
    pub(super) fn new(key: &PortKey) -> Self {
        let port = key.to_string();
        let hash = hash(&format!("{port}{}", key.protocol));
        Self { port, hash }
    }

    /// Selects among all endpoints in the cluster.
    pub(super) fn cluster(&self) -> String {
        format!("KUBE-SVC-{}", self.hash)
    }

    /// Selects among endpoints on this node.
    pub(super) fn local(&self) -> String {
        format!("KUBE-SVL-{}", self.hash)
    }

    /// Lets the sources through that may use the load balancer's addresses.
    pub(super) fn firewall(&self) -> String {
        format!("KUBE-FW-{}", self.hash)
    }

    /// Where traffic to external addresses enters.
    pub(super) fn external(&self) -> String {
        format!("KUBE-EXT-{}", self.hash)
    }

    /// All but the endpoints' chains.
    pub(super) fn all(&self) -> [String; 4] {
        [
            self.cluster(),
            self.local(),
            self.firewall(),
            self.external(),
        ]
    }
}

/// An endpoint's address and port, as comments and hashes have it.
pub(super) fn endpoint_text(endpoint: &Endpoint) -> String {
    std::net::SocketAddr::new(endpoint.ip, endpoint.port).to_string()
}

/// The name of an endpoint's chain.
pub(super) fn endpoint_chain(key: &PortKey, endpoint: &str) -> String {
    let hash = hash(&format!("{key}{}{endpoint}", key.protocol));
    format!("KUBE-SEP-{hash}")
}

/// The first 16 characters of the base 32 of the SHA-256.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    Base32(&digest[..10]).to_string()
}

/// RFC 4648 without padding, for whole groups of five bytes.
struct Base32<'a>(&'a [u8]);

impl fmt::Display for Base32<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
        for group in self.0.chunks_exact(5) {
            let bits = group
                .iter()
                .fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
            for shift in (0..8).rev() {
                let digit = (bits >> (shift * 5)) as usize % ALPHABET.len();
                write!(f, "{}", char::from(ALPHABET[digit]))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_kube_proxys() {
        let vectors = [
            ("ns1/svc1:p80tcp", "XPGD46QRK7WJZT7O"),
            ("ns4/svc4:p80tcp10.180.0.4:80", "UKSFD7AGPMPPLUHC"),
            ("ns1/svc1:p80tcp10.180.0.1:80", "SXIVWICOYRO3J4NJ"),
            ("ns4/svc4:p8082tcp", "EBDQOQU5SJFXRIL3"),
            ("default/kubernetes:httpstcp", "NPX46M4PTMTKRN6Y"),
            ("kube-system/kube-dns:dnsudp", "TCOU7JCQXEZGVUNU"),
            ("kube-system/kube-dns:dns-tcptcp", "ERIFXISQEP7F7OF4"),
            ("ns1/svc1sctp", "XEX64ODZFKX54AW6"),
            ("ns1/svc1:p80tcp[fd00:10:180::1]:80", "OGYCNMB4EMRUSJ6N"),
        ];
        for (text, expected) in vectors {
            assert_eq!(hash(text), expected, "{text}");
        }
    }
}
