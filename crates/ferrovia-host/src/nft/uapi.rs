//! nf_tables' numbers, as the kernel's headers have them: message kinds, attributes, flags.

/// The family's fixed header: address family, version, and a number that only batches use.
pub(super) const HEADER_LEN: usize = 4;
/// The subsystem in the upper byte of every message kind.
const SUBSYSTEM: u16 = 10;
/// The notification group that hears of every commit.
pub(super) const GROUP: u32 = 7;
/// What opens and closes a transaction. These belong to netfilter as a whole, so they carry the
/// subsystem in the fixed header instead.
pub(super) const BATCH_BEGIN: u16 = 16;
pub(super) const BATCH_END: u16 = 17;
pub(super) const BATCH_SUBSYSTEM: u16 = SUBSYSTEM;

/// Message kinds.
pub(super) mod msg {
    use super::SUBSYSTEM;

    pub(in super::super) const NEW_TABLE: u16 = kind(0);
    pub(in super::super) const GET_TABLE: u16 = kind(1);
    pub(in super::super) const DEL_TABLE: u16 = kind(2);
    pub(in super::super) const NEW_CHAIN: u16 = kind(3);
    pub(in super::super) const GET_CHAIN: u16 = kind(4);
    pub(in super::super) const DEL_CHAIN: u16 = kind(5);
    pub(in super::super) const NEW_RULE: u16 = kind(6);
    pub(in super::super) const GET_RULE: u16 = kind(7);
    pub(in super::super) const DEL_RULE: u16 = kind(8);
    pub(in super::super) const NEW_SET: u16 = kind(9);
    pub(in super::super) const GET_SET: u16 = kind(10);
    pub(in super::super) const NEW_ELEMENT: u16 = kind(12);
    pub(in super::super) const GET_ELEMENT: u16 = kind(13);
    pub(in super::super) const DEL_ELEMENT: u16 = kind(14);
    pub(in super::super) const NEW_GENERATION: u16 = kind(15);
    pub(in super::super) const GET_GENERATION: u16 = kind(16);
    pub(in super::super) const GET_OBJECT: u16 = kind(19);

    /// The message is one of nf_tables.
    pub(in super::super) fn is_ours(kind: u16) -> bool {
        kind >> 8 == SUBSYSTEM
    }

    const fn kind(number: u16) -> u16 {
        SUBSYSTEM << 8 | number
    }
}

/// Lists have this one attribute, again and again.
pub(super) const LIST_ITEM: u16 = 1;
/// Every object but a table names its table first; so does a table itself.
pub(super) const OBJECT_TABLE: u16 = 1;

/// A transaction's generation, and the kernel's.
pub(super) mod generation {
    pub(in super::super) const ID: u16 = 1;
}

/// Tables.
pub(super) mod table {
    pub(in super::super) const NAME: u16 = 1;
    pub(in super::super) const FLAGS: u16 = 2;
    /// The table's base chains see no packets.
    pub(in super::super) const DORMANT: u32 = 1;
    /// Only the process that made the table may change it, and it goes with that process.
    pub(in super::super) const OWNER: u32 = 2;
    pub(in super::super) const USERDATA: u16 = 6;
}

/// Chains.
pub(super) mod chain {
    pub(in super::super) const TABLE: u16 = 1;
    pub(in super::super) const NAME: u16 = 3;
    pub(in super::super) const HOOK: u16 = 4;
    pub(in super::super) const POLICY: u16 = 5;
    pub(in super::super) const USE: u16 = 6;
    pub(in super::super) const TYPE: u16 = 7;

    pub(in super::super) const HOOK_NUMBER: u16 = 1;
    pub(in super::super) const HOOK_PRIORITY: u16 = 2;

    pub(in super::super) const POLICY_DROP: u32 = 0;
    pub(in super::super) const POLICY_ACCEPT: u32 = 1;
}

/// Rules, and the instructions in them.
pub(super) mod rule {
    pub(in super::super) const TABLE: u16 = 1;
    pub(in super::super) const CHAIN: u16 = 2;
    pub(in super::super) const HANDLE: u16 = 3;
    pub(in super::super) const EXPRESSIONS: u16 = 4;
    pub(in super::super) const USERDATA: u16 = 7;

    pub(in super::super) const EXPR_NAME: u16 = 1;
    pub(in super::super) const EXPR_DATA: u16 = 2;
}

/// Sets and maps.
pub(super) mod set {
    pub(in super::super) const TABLE: u16 = 1;
    pub(in super::super) const NAME: u16 = 2;
    pub(in super::super) const FLAGS: u16 = 3;
    pub(in super::super) const KEY_TYPE: u16 = 4;
    pub(in super::super) const KEY_LEN: u16 = 5;
    pub(in super::super) const DATA_TYPE: u16 = 6;
    pub(in super::super) const DATA_LEN: u16 = 7;
    pub(in super::super) const DESC: u16 = 9;
    pub(in super::super) const ID: u16 = 10;
    /// How long elements live that do not say it themselves.
    pub(in super::super) const OWN_TIMEOUT: u16 = 11;
    pub(in super::super) const USERDATA: u16 = 13;
    pub(in super::super) const EXPR: u16 = 17;
    pub(in super::super) const EXPRESSIONS: u16 = 18;

    pub(in super::super) const DESC_SIZE: u16 = 1;
    pub(in super::super) const DESC_CONCAT: u16 = 2;
    pub(in super::super) const FIELD_LEN: u16 = 1;

    pub(in super::super) const CONSTANT: u32 = 0x2;
    pub(in super::super) const INTERVAL: u32 = 0x4;
    pub(in super::super) const MAP: u32 = 0x8;
    pub(in super::super) const TIMEOUT: u32 = 0x10;
    pub(in super::super) const EVAL: u32 = 0x20;
    pub(in super::super) const CONCAT: u32 = 0x80;
    /// Those that sets of ours have.
    pub(in super::super) const WRITTEN_FLAGS: u32 = INTERVAL | MAP | TIMEOUT | EVAL | CONCAT;

    /// The data type of verdict maps.
    pub(in super::super) const VERDICT: u32 = 0xffff_ff00;
}

/// Elements of sets.
pub(super) mod element {
    pub(in super::super) const LIST_TABLE: u16 = 1;
    pub(in super::super) const LIST_SET: u16 = 2;
    pub(in super::super) const LIST_ELEMENTS: u16 = 3;

    pub(in super::super) const KEY: u16 = 1;
    pub(in super::super) const DATA: u16 = 2;
    pub(in super::super) const FLAGS: u16 = 3;
    pub(in super::super) const EXPIRATION: u16 = 5;
    pub(in super::super) const USERDATA: u16 = 6;
    pub(in super::super) const EXPR: u16 = 7;
    pub(in super::super) const KEY_END: u16 = 10;
    pub(in super::super) const EXPRESSIONS: u16 = 11;

    /// The element ends a range and is not part of it.
    pub(in super::super) const INTERVAL_END: u32 = 1;
}

/// Named objects.
pub(super) mod object {
    pub(in super::super) const NAME: u16 = 2;
}

/// Values and verdicts.
pub(super) mod data {
    pub(in super::super) const VALUE: u16 = 1;
    pub(in super::super) const VERDICT: u16 = 2;

    pub(in super::super) const VERDICT_CODE: u16 = 1;
    pub(in super::super) const VERDICT_CHAIN: u16 = 2;
}

/// The counter instruction.
pub(super) mod counter {
    pub(in super::super) const NAME: &str = "counter";
    pub(in super::super) const BYTES: u16 = 1;
    pub(in super::super) const PACKETS: u16 = 2;
}
