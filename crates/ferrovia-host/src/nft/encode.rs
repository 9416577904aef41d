//! A transaction as one batch of messages.
//!
//! The kernel applies a batch completely or not at all and replies to each message that failed. [`EncodedBatch`]
//! remembers which operation, and which of its elements, every message stands for, so that such an
//! error can name the operation.

use ferrovia_core::dialect::nft::bytecode::{self, Expr};
use ferrovia_core::dialect::nft::{Element, NftChain, NftOp, SetSpec, Transaction};
use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::netlink::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_NONREC, NLM_F_REQUEST,
};
use ferrovia_netlink::uapi::nf_tables::{
    NFT_MSG_DELCHAIN, NFT_MSG_DELRULE, NFT_MSG_DELSETELEM, NFT_MSG_DELTABLE, NFT_MSG_NEWCHAIN,
    NFT_MSG_NEWRULE, NFT_MSG_NEWSET, NFT_MSG_NEWSETELEM, NFT_MSG_NEWTABLE, NFT_TABLE_F_OWNER,
    NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_CHAIN_TABLE, NFTA_CHAIN_TYPE,
    NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY, NFTA_LIST_ELEM, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS,
    NFTA_RULE_HANDLE, NFTA_RULE_TABLE, NFTA_RULE_USERDATA, NFTA_SET_ELEM_LIST_ELEMENTS,
    NFTA_SET_ELEM_LIST_SET, NFTA_SET_ELEM_LIST_TABLE, NFTA_SET_ID, NFTA_SET_NAME, NFTA_SET_TABLE,
    NFTA_TABLE_FLAGS, NFTA_TABLE_NAME, NFTA_TABLE_USERDATA,
};
use ferrovia_netlink::uapi::nfnetlink::{
    NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NFNL_SUBSYS_NFTABLES,
};
use ferrovia_netlink::{AttributeTooLong, Header, Writer, nfnetlink};

use super::{expr, message_type, sets, userdata};

/// A list of elements is an attribute, whose length has 16 bits. Past this many bytes, which leaves
/// room for one more element, the next message begins.
const ELEMENTS_LIMIT: usize = 60_000;

/// A transaction ready to be sent.
pub(super) struct EncodedBatch {
    pub(super) bytes: Vec<u8>,
    /// What each message between begin and end is for.
    pub(super) parts: Vec<BatchPart>,
    /// The sequence number of the message that begins the batch; the parts' follow it.
    pub(super) first_seq: u32,
}

/// What a message is for.
pub(super) struct BatchPart {
    pub(super) start: usize,
    /// The operation's place in the transaction.
    pub(super) op: usize,
    /// The first element it holds, if it is about elements.
    pub(super) first_element: usize,
}

/// Puts a transaction into messages.
pub(super) fn batch(
    transaction: &Transaction,
    first_seq: u32,
) -> Result<EncodedBatch, AttributeTooLong> {
    let mut encoder = Encoder::begin(transaction.family, first_seq);
    for (number, op) in transaction.ops.iter().enumerate() {
        encoder.op = number;
        encoder.operation(op, &transaction.table);
    }
    encoder.end()
}

/// A batch being written.
pub(super) struct Encoder {
    writer: Writer,
    parts: Vec<BatchPart>,
    family: Family,
    first_seq: u32,
    /// The operation that is being written.
    pub(super) op: usize,
}

impl Encoder {
    pub(super) fn begin(family: Family, first_seq: u32) -> Self {
        let mut encoder = Self {
            writer: Writer::with_capacity(4096),
            parts: Vec::new(),
            family,
            first_seq,
            op: 0,
        };
        encoder.batch_mark(NFNL_MSG_BATCH_BEGIN, first_seq);
        encoder
    }

    pub(super) fn end(mut self) -> Result<EncodedBatch, AttributeTooLong> {
        // One acknowledgement for all: it comes last, after the refusals, which come unasked. The
        // closing message cannot carry the wish, kernels before 6.10 ignore it there.
        if let Some(last) = self.parts.last() {
            self.writer.add_flags(last.start, NLM_F_ACK);
        }
        let seq = self.next_seq();
        self.batch_mark(NFNL_MSG_BATCH_END, seq);
        Ok(EncodedBatch {
            bytes: self.writer.finish()?,
            parts: self.parts,
            first_seq: self.first_seq,
        })
    }

    fn operation(&mut self, op: &NftOp, table: &str) {
        match op {
            NftOp::AddTable => self.add_table(table, 0),
            NftOp::DeleteTable => self.delete_table(table),
            NftOp::DeleteOtherTable(other) => self.delete_table(other),
            NftOp::AddSet(set) => self.add_set(table, set),
            NftOp::AddChain(chain) => self.add_chain(table, chain),
            NftOp::FlushChain(chain) => self.flush_chain(table, chain),
            NftOp::DeleteChain(chain) => self.delete_chain(table, chain),
            NftOp::AddRule(chain, rule) => {
                let code = bytecode::lower(rule, self.family);
                self.add_rule(table, chain, &code, rule.comment);
            }
            NftOp::AddElements(set, elements) => self.add_elements(table, set, elements),
            NftOp::DeleteElements(set, elements) => self.delete_elements(table, set, elements),
        }
    }

    /// Makes a table; it being there already is fine.
    pub(super) fn add_table(&mut self, name: &str, flags: u32) {
        self.message(NFT_MSG_NEWTABLE, NLM_F_CREATE, |w, _| {
            w.text(NFTA_TABLE_NAME, name);
            w.be32(NFTA_TABLE_FLAGS, flags);
        });
    }

    /// Makes a table that only this connection can change and that goes when this connection closes; it must not exist yet.
    pub(super) fn add_owned_table(&mut self, name: &str, comment: &str) {
        self.message(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, |w, _| {
            w.text(NFTA_TABLE_NAME, name);
            w.be32(NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER);
            w.bytes(NFTA_TABLE_USERDATA, &userdata::for_comment(comment));
        });
    }

    pub(super) fn delete_table(&mut self, name: &str) {
        self.message(NFT_MSG_DELTABLE, 0, |w, _| w.text(NFTA_TABLE_NAME, name));
    }

    /// Makes a chain; it being there already is fine if it is attached alike.
    pub(super) fn add_chain(&mut self, table: &str, chain: &NftChain) {
        self.message(NFT_MSG_NEWCHAIN, NLM_F_CREATE, |w, _| {
            w.text(NFTA_CHAIN_TABLE, table);
            w.text(NFTA_CHAIN_NAME, &chain.name);
            if let Some(hook) = chain.hook {
                w.nested(NFTA_CHAIN_HOOK, |w| {
                    w.be32(NFTA_HOOK_HOOKNUM, hook.point as u32);
                    w.be32(NFTA_HOOK_PRIORITY, hook.priority.cast_unsigned());
                });
                w.be32(NFTA_CHAIN_POLICY, libc::NF_ACCEPT as u32);
                w.text(NFTA_CHAIN_TYPE, hook.kind.name());
            }
        });
    }

    pub(super) fn delete_rule(&mut self, table: &str, chain: &str, handle: u64) {
        self.message(NFT_MSG_DELRULE, 0, |w, _| {
            w.text(NFTA_RULE_TABLE, table);
            w.text(NFTA_RULE_CHAIN, chain);
            w.be64(NFTA_RULE_HANDLE, handle);
        });
    }

    /// Removes a chain's rules.
    pub(super) fn flush_chain(&mut self, table: &str, name: &str) {
        // A delete that names no rule means all of the chain's.
        self.message(NFT_MSG_DELRULE, 0, |w, _| {
            w.text(NFTA_RULE_TABLE, table);
            w.text(NFTA_RULE_CHAIN, name);
        });
    }

    /// Removes a chain without rules.
    pub(super) fn delete_chain(&mut self, table: &str, name: &str) {
        self.message(NFT_MSG_DELCHAIN, NLM_F_NONREC, |w, _| {
            w.text(NFTA_CHAIN_TABLE, table);
            w.text(NFTA_CHAIN_NAME, name);
        });
    }

    pub(super) fn add_rule(
        &mut self,
        table: &str,
        chain: &str,
        code: &[Expr],
        comment: Option<&str>,
    ) {
        self.message(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, |w, family| {
            w.text(NFTA_RULE_TABLE, table);
            w.text(NFTA_RULE_CHAIN, chain);
            w.nested(NFTA_RULE_EXPRESSIONS, |w| {
                for instruction in code {
                    w.nested(NFTA_LIST_ELEM, |w| expr::write(w, family, instruction));
                }
            });
            if let Some(comment) = comment {
                w.bytes(NFTA_RULE_USERDATA, &userdata::for_comment(comment));
            }
        });
    }

    fn add_set(&mut self, table: &str, spec: &SetSpec) {
        // Sets of a batch can be referred to by a number. We refer by name, but the kernel insists
        // on one.
        let id = self.parts.len() as u32 + 1;
        self.message(NFT_MSG_NEWSET, NLM_F_CREATE, |w, _| {
            w.text(NFTA_SET_TABLE, table);
            w.text(NFTA_SET_NAME, spec.name);
            w.be32(NFTA_SET_ID, id);
            sets::write_definition(w, spec);
        });
    }

    fn add_elements(&mut self, table: &str, spec: &SetSpec, elements: &[Element]) {
        self.elements(
            NFT_MSG_NEWSETELEM,
            NLM_F_CREATE,
            table,
            spec,
            elements,
            |w, element| {
                sets::write_element(w, spec, element, true);
            },
        );
    }

    fn delete_elements(&mut self, table: &str, spec: &SetSpec, elements: &[Element]) {
        self.elements(
            NFT_MSG_DELSETELEM,
            0,
            table,
            spec,
            elements,
            |w, element| {
                sets::write_element(w, spec, element, false);
            },
        );
    }

    /// As many messages as the elements need.
    fn elements(
        &mut self,
        message: u8,
        flags: u16,
        table: &str,
        spec: &SetSpec,
        elements: &[Element],
        write: impl Fn(&mut Writer, &Element),
    ) {
        let mut rest = elements.iter();
        while !rest.as_slice().is_empty() {
            let first_element = elements.len() - rest.len();
            self.message(message, flags, |w, _| {
                w.text(NFTA_SET_ELEM_LIST_TABLE, table);
                w.text(NFTA_SET_ELEM_LIST_SET, spec.name);
                w.nested(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                    let start = w.len();
                    for element in rest.by_ref() {
                        write(w, element);
                        if w.len() - start > ELEMENTS_LIMIT {
                            break;
                        }
                    }
                });
            });
            if let Some(part) = self.parts.last_mut() {
                part.first_element = first_element;
            }
        }
    }

    fn message(&mut self, message: u8, flags: u16, body: impl FnOnce(&mut Writer, Family)) {
        let header = Header {
            kind: message_type(message),
            flags: flags | NLM_F_REQUEST,
            seq: self.next_seq(),
        };
        self.parts.push(BatchPart {
            start: self.writer.len(),
            op: self.op,
            first_element: 0,
        });
        let family = self.family;
        self.writer.message(header, |w| {
            w.raw(&super::fixed_header(Some(family)));
            body(w, family);
        });
    }

    fn batch_mark(&mut self, kind: u16, seq: u32) {
        self.writer.message(
            Header {
                kind,
                flags: NLM_F_REQUEST,
                seq,
            },
            |w| {
                w.raw(&nfnetlink::batch_header(NFNL_SUBSYS_NFTABLES));
            },
        );
    }

    fn next_seq(&self) -> u32 {
        // There are never anywhere near 2^32 messages: each takes more than 20 bytes.
        self.first_seq
            .wrapping_add(self.parts.len() as u32)
            .wrapping_add(1)
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_core::dialect::nft::{DataType, FieldType, KeyBuilder};
    use ferrovia_netlink::messages;

    use super::*;

    const MAP: SetSpec = SetSpec {
        name: "m",
        key: &[FieldType::ClassId],
        data: Some(DataType::Fields(&[FieldType::ClassId])),
        interval: false,
        dynamic: None,
        counter: false,
    };

    fn batch_of(ops: Vec<NftOp>) -> EncodedBatch {
        let transaction = Transaction {
            family: Family::V4,
            table: "t".into(),
            ops,
            notes: Vec::new(),
        };
        batch(&transaction, 100).unwrap()
    }

    fn element(n: u32) -> Element {
        Element::value(
            KeyBuilder::new().number(n).build(),
            KeyBuilder::new().number(1).build(),
        )
    }

    #[test]
    fn a_batch_is_framed_numbered_and_acknowledged_once() {
        let bytes = batch_of(vec![NftOp::AddTable, NftOp::FlushChain("c".into())]).bytes;
        let read: Vec<_> = messages(&bytes)
            .map(|m| (m.kind, m.seq, m.flags & NLM_F_ACK))
            .collect();
        assert_eq!(
            read,
            [
                (16, 100, 0),
                (0x0a00, 101, 0),
                (0x0a08, 102, 4),
                (17, 103, 0)
            ]
        );
    }

    #[test]
    fn many_elements_are_cut_into_messages_that_know_their_place() {
        let elements: Vec<_> = (0..10_000).map(element).collect();
        let batch = batch_of(vec![NftOp::AddTable, NftOp::AddElements(MAP, elements)]);
        let firsts: Vec<_> = batch
            .parts
            .iter()
            .map(|part| (part.op, part.first_element))
            .collect();
        // An element takes 28 bytes, so 2143 of them are the first to exceed the limit.
        assert_eq!(
            firsts,
            [(0, 0), (1, 0), (1, 2143), (1, 4286), (1, 6429), (1, 8572)]
        );
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn golden_element() {
        let batch = batch_of(vec![NftOp::AddElements(
            MAP,
            vec![element(0x0102_0304).with_comment("x")],
        )]);
        let message = messages(&batch.bytes).nth(1).unwrap();
        #[rustfmt::skip]
        let expected = [
            2, 0, 0, 0,
            6, 0, 1, 0, b't', 0, 0, 0,
            6, 0, 2, 0, b'm', 0, 0, 0,
            40, 0, 3, 0x80,
            36, 0, 1, 0x80,
            12, 0, 1, 0x80, 8, 0, 1, 0, 4, 3, 2, 1,
            12, 0, 2, 0x80, 8, 0, 1, 0, 1, 0, 0, 0,
            8, 0, 6, 0, 0, 2, b'x', 0,
        ];
        assert_eq!(message.body, expected);
    }
}
