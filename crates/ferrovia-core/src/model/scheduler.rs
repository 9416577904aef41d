//! The name of one of the kernel's schedulers, which choose among the destinations of a virtual server.

use std::fmt;

/// The name of a scheduler: one to fifteen of `a-z`, `0-9` and `_`. Stored in the kernel's format, zero-padded to sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scheduler([u8; 16]);

impl Scheduler {
    /// Round robin: each in turn, whatever its weight.
    pub const RR: Self = Self::constant("rr");
    /// Round robin in proportion to weights.
    pub const WRR: Self = Self::constant("wrr");
    /// To the one with the fewest connections, whatever its weight.
    pub const LC: Self = Self::constant("lc");
    /// To the one with the fewest connections in proportion to its weight.
    pub const WLC: Self = Self::constant("wlc");
    /// By the client's address, with few clients that move when destinations come and go.
    pub const MH: Self = Self::constant("mh");
    /// By the client's address.
    pub const SH: Self = Self::constant("sh");

    /// Those that Linux has. A kernel may lack some, and may have others.
    pub const NAMES: [&'static str; 14] = [
        "rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq", "fo", "ovf", "mh",
        "twos",
    ];

    /// A name that can be one; `None` for any other text.
    pub fn new(name: &str) -> Option<Self> {
        let is_part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let fits = (1..=15).contains(&name.len()) && name.bytes().all(is_part);
        fits.then(|| Self::constant(name))
    }

    /// One of those that Linux has; `None` for any other name.
    pub fn known(name: &str) -> Option<Self> {
        Self::NAMES.contains(&name).then(|| Self::constant(name))
    }

    pub fn as_str(&self) -> &str {
        let name = self.0.split(|b| *b == 0).next().unwrap_or_default();
        // Only ASCII gets in.
        std::str::from_utf8(name).unwrap_or_default()
    }

    /// A name of at most fifteen bytes, unchecked.
    const fn constant(name: &str) -> Self {
        let (from, mut to, mut at) = (name.as_bytes(), [0; 16], 0);
        while at < from.len() && at < 15 {
            to[at] = from[at];
            at += 1;
        }
        Self(to)
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::RR
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_can_be_schedulers() {
        for name in Scheduler::NAMES {
            assert_eq!(Scheduler::new(name).unwrap().as_str(), name);
            assert_eq!(Scheduler::new(name), Scheduler::known(name));
        }
        assert!(Scheduler::new("out_of_tree_15_").is_some());
        assert!(Scheduler::known("out_of_tree_15_").is_none());
        for bad in [
            "",
            "RR",
            "r r",
            "rr\n",
            "rr -p",
            "r\0r",
            "sixteen_bytes_16",
            "rü",
        ] {
            assert_eq!(Scheduler::new(bad), None, "{bad:?}");
        }
    }
}
