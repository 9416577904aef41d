//! The attributes of netlink messages, written and found.

/// What follows a message's header: a header of its kind, then attributes.
#[derive(Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn behind(header: &[u8]) -> Self {
        Self(header.to_vec())
    }

    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        const OWN_HEADER_LEN: usize = 4;
        // Names and addresses: nothing here comes near the limit.
        let length = u16::try_from(OWN_HEADER_LEN + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        self.with(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn nested(self, kind: u16, value: &Self) -> Self {
        self.with(kind, &value.0)
    }
}

/// The value of an attribute.
pub(super) fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (header, _) = attributes.split_first_chunk::<4>()?;
        let [low, high, kind_low, kind_high] = *header;
        let length = usize::from(u16::from_ne_bytes([low, high]));
        if u16::from_ne_bytes([kind_low, kind_high]) == wanted {
            return attributes.get(4..length);
        }
        // One that claims to be shorter than its own header would be looked at for ever.
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_where_they_were_put() {
        let inner = Attributes::default().text(1, "veth");
        let written = Attributes::default().with(3, &[7]).nested(18, &inner);
        assert_eq!(find(&written.0, 3), Some(&[7][..]));
        let inner = find(&written.0, 18).unwrap();
        assert_eq!(find(inner, 1), Some(&b"veth\0"[..]));
        assert_eq!(find(&written.0, 4), None);
        assert_eq!(find(&[0; 64], 4), None);
    }
}
