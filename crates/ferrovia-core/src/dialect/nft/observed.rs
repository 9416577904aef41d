//! What is in the kernel, as far as it concerns us.

use std::collections::{BTreeMap, HashMap};

use super::bytecode::Expr;
use super::{DataType, ElementData, ElementKey, Hook, SetSpec};

/// Our table of one family, as read back. Empty when there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NftObserved {
    /// The table is there.
    pub exists: bool,
    /// Its chains by name.
    pub chains: BTreeMap<String, ObservedChain>,
    /// Its sets and maps by name.
    pub sets: BTreeMap<String, ObservedSet>,
    /// Tables of predecessors that would do our work a second time.
    pub predecessors: Vec<String>,
    /// Descriptions of objects that we never write and cannot repair individually; with any of these the table is recreated.
    pub oddities: Vec<String>,
}

/// A chain and its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedChain {
    /// Where it is attached.
    pub hook: Option<Hook>,
    /// The instructions of each rule, in order.
    pub rules: Vec<Vec<Expr>>,
}

/// A set or map and its elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedSet {
    /// Length of a key in bytes.
    pub key_len: usize,
    /// Length of the data in bytes; 0 for verdicts and plain sets.
    pub data_len: usize,
    /// It maps keys to something.
    pub is_map: bool,
    /// Its data are verdicts.
    pub is_verdict_map: bool,
    /// Its keys are ranges.
    pub interval: bool,
    pub dynamic: bool,
    pub counter: bool,
    /// The elements. Those of a dynamic set are left out: they belong to the packets, not to us.
    pub elements: HashMap<ElementKey, ObservedElement>,
}

impl ObservedSet {
    /// What a set made by this definition is found as, without elements.
    pub fn of(spec: &SetSpec) -> Self {
        Self {
            key_len: spec.key_len(),
            data_len: spec.data_len(),
            is_map: spec.data.is_some(),
            is_verdict_map: spec.data == Some(DataType::Verdict),
            interval: spec.interval,
            dynamic: spec.dynamic.is_some(),
            counter: spec.counter,
            elements: HashMap::new(),
        }
    }

    /// The set could have been made by this definition.
    pub(crate) fn is_made_by(&self, spec: &SetSpec) -> bool {
        let wanted = Self::of(spec);
        self.key_len == wanted.key_len
            && self.data_len == wanted.data_len
            && self.is_map == wanted.is_map
            && self.is_verdict_map == wanted.is_verdict_map
            && self.interval == wanted.interval
            && self.dynamic == wanted.dynamic
            && self.counter == wanted.counter
    }
}

/// What is known of an element beside its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedElement {
    /// The last key of a range.
    pub key_end: Option<ElementKey>,
    /// What the key leads to.
    pub data: Option<ElementData>,
    pub comment: Option<Box<str>>,
}
