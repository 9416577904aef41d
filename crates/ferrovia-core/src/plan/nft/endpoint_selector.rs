//! Endpoint selectors: how an endpoint is selected from a list, and the chains that do it.
//!
//! A chain is shared by all lists of one selector class: the same number of slots and the same affinity timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::base_chains::NftChainRules;
use super::layout::{CLASS_BITS, LIST_BITS, LOCAL, NftSetId, PORT_BITS, client_key};
use super::share::{MAX_UNCOMMON_CLASSES, NamespaceShares, is_common};
use crate::dialect::nft::{
    Field, NftMatch, NftName, NftRule, PriorityValue, Sense, SetUpdate, Statement,
};

/// How an endpoint is selected. Its `Display` form is the name of its chain, and parses back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum EndpointSelector {
    /// A slot at random.
    Random {
        /// Slots in the list.
        slots: u32,
    },
    /// A slot by the client's address.
    SourceHash {
        /// Slots in the list.
        slots: u32,
    },
    /// The endpoint the client had last; without one, a slot by the client's address.
    Sticky {
        /// Whether the list is the one for policy Local.
        local: bool,
        /// Seconds a client is remembered.
        timeout: u32,
        /// Slots in the list.
        slots: u32,
    },
}

impl fmt::Display for EndpointSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random { slots } => write!(f, "pick-{slots}"),
            Self::SourceHash { slots } => write!(f, "hash-{slots}"),
            Self::Sticky {
                local: false,
                timeout,
                slots,
            } => write!(f, "sticky-{timeout}-{slots}"),
            Self::Sticky {
                local: true,
                timeout,
                slots,
            } => write!(f, "sticky-local-{timeout}-{slots}"),
        }
    }
}

impl FromStr for EndpointSelector {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse().map_err(|_| ());
        let sticky = |local, timeout, slots| {
            Ok(Self::Sticky {
                local,
                timeout: number(timeout)?,
                slots: number(slots)?,
            })
        };
        let pick = match name.split('-').collect::<Vec<_>>()[..] {
            ["pick", slots] => Self::Random {
                slots: number(slots)?,
            },
            ["hash", slots] => Self::SourceHash {
                slots: number(slots)?,
            },
            ["sticky", timeout, slots] => sticky(false, timeout, slots)?,
            ["sticky", "local", timeout, slots] => sticky(true, timeout, slots)?,
            _ => return Err(()),
        };
        // `pick-02` is not a name that we generate.
        if pick.to_string() == name {
            Ok(pick)
        } else {
            Err(())
        }
    }
}

impl EndpointSelector {
    /// The number of slots that it selects from.
    pub(super) fn slots(self) -> u32 {
        let (Self::Random { slots } | Self::SourceHash { slots } | Self::Sticky { slots, .. }) =
            self;
        slots
    }

    /// The name of the chain.
    pub(super) fn chain(self) -> NftName {
        self.to_string().into()
    }

    /// The chains it needs, those that are jumped to first.
    pub(super) fn chains(self) -> Vec<NftChainRules> {
        match self {
            Self::Random { slots } => vec![self.rules(pick_slot(Field::Random(slots)))],
            Self::SourceHash { slots } => vec![self.rules(pick_slot(Field::SourceHash(slots)))],
            Self::Sticky {
                local,
                timeout,
                slots,
            } => vec![
                NftChainRules::plain(stick_chain(timeout), stick(timeout)),
                self.rules(pick_sticky(local, timeout, slots)),
            ],
        }
    }

    fn rules(self, rules: Vec<NftRule>) -> NftChainRules {
        NftChainRules::plain(self.chain(), rules)
    }
}

/// The chain that records a client's endpoint and translates the connection to it.
fn stick_chain(timeout: u32) -> NftName {
    format!("{STICK}{timeout}").into()
}

/// Prefix of the chains that record affinity.
pub(super) const STICK: &str = "stick-";

fn keep_list() -> NftRule {
    NftRule::always(Statement::SetPriority(PriorityValue::Bits(LIST_BITS)))
}

fn pick_slot(slot: Field) -> Vec<NftRule> {
    let key = vec![Field::L4Proto, Field::Priority, slot];
    vec![
        keep_list(),
        NftRule::always(Statement::Dnat(key, NftSetId::Endpoints.name().into())),
    ]
}

/// A client with an affinity entry keeps its endpoint if that is still in this list. If not, the entry is deleted (an update would
/// keep the old endpoint) and the client gets the slot its address hashes to: a client without an entry because the map is full still gets
/// the same endpoint for as long as the list stays the same.
fn pick_sticky(local: bool, timeout: u32, slots: u32) -> Vec<NftRule> {
    let endpoint = vec![Field::L4Proto, Field::Priority];
    let slot = vec![Field::PriorityBits(LIST_BITS), Field::SourceHash(slots)];
    let stick = || Statement::Goto(stick_chain(timeout));
    let set = |value| NftRule::always(Statement::SetPriority(value));
    let read = |key, map: NftSetId| set(PriorityValue::Map(key, map.name().into()));
    // The entry may come from the other list, or be absent.
    let this_list = if local {
        PriorityValue::With(LOCAL)
    } else {
        PriorityValue::Bits(!LOCAL)
    };
    vec![
        // In a rule of its own: nft cannot load a masked field in the key of `map` here.
        set(PriorityValue::Bits(PORT_BITS)),
        read(vec![Field::Saddr, Field::Priority], NftSetId::Affinity),
        set(this_list),
        NftRule::when(NftMatch::InSet(
            endpoint,
            NftSetId::StickyEndpoints.name().into(),
            Sense::Is,
        ))
        .then(stick()),
        NftRule::always(Statement::Dynamic(SetUpdate::Delete {
            map: NftSetId::Affinity.name().into(),
            key: client_key(),
        })),
        read(slot, NftSetId::StickySlots),
        NftRule::always(stick()),
    ]
}

fn stick(timeout: u32) -> Vec<NftRule> {
    let remember = SetUpdate::Refresh {
        map: NftSetId::Affinity.name().into(),
        key: client_key(),
        timeout,
    };
    let translate = || {
        let endpoint = vec![Field::L4Proto, Field::Priority];
        Statement::Dnat(endpoint, NftSetId::StickyEndpoints.name().into())
    };
    vec![
        NftRule::always(Statement::Dynamic(remember)).then(translate()),
        // The kernel ends a rule where the map is full, so only clients without an entry get here. The daemon watches the counter.
        NftRule::always(Statement::Counter)
            .then(translate())
            .because("no room to remember the client"),
    ]
}

/// Slot counts whose random selectors have permanent chains, created with the table. The kernel walks a whole map when a new chain
/// first refers to it, which takes 20 ms for 100,000 endpoints; when the table is created the map is empty. The larger ones are those that
/// other slot counts are rounded to.
const PERMANENT: [u32; 26] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
    8192, 16384,
];

/// The selector classes in use, each with its number in ids.
#[derive(Debug, Default)]
pub(super) struct SelectorClasses {
    entries: BTreeMap<EndpointSelector, SelectorClass>,
    numbers: BTreeSet<u32>,
    /// How many of the entries are uncommon.
    uncommon: usize,
    shares: NamespaceShares,
    fresh: Vec<(EndpointSelector, u32)>,
}

#[derive(Debug)]
struct SelectorClass {
    number: u32,
    lists: u32,
}

impl SelectorClasses {
    /// Adds the permanent selectors, unless they were adopted. They count as used.
    pub(super) fn make_permanent(&mut self) {
        for slots in PERMANENT {
            self.hold(EndpointSelector::Random { slots });
        }
    }

    /// Adopts a class number that is in use in the kernel, unless there are too many uncommon ones: an earlier version had no limit.
    pub(super) fn adopt(&mut self, pick: EndpointSelector, number: u32) {
        let fits = (1..=CLASS_BITS).contains(&number) && self.has_room(pick);
        if fits && !self.entries.contains_key(&pick) && self.numbers.insert(number) {
            self.insert(pick, number, 0);
        }
    }

    /// Adds a list of a namespace as a user of a selector and returns its class; `None` if the selector is uncommon and either this namespace
    /// or all namespaces together use as many as they may.
    pub(super) fn acquire(&mut self, namespace: &str, pick: EndpointSelector) -> Option<u32> {
        if is_common(pick) {
            return self.hold(pick);
        }
        let is_known = self.entries.contains_key(&pick);
        if !(is_known || self.has_room(pick)) || !self.shares.charge(namespace, pick) {
            return None;
        }
        self.hold(pick)
    }

    /// Adds a user of a selector without charging a namespace, and returns its class; `None` if no class number is free.
    pub(super) fn hold(&mut self, pick: EndpointSelector) -> Option<u32> {
        if let Some(class) = self.entries.get_mut(&pick) {
            class.lists += 1;
            return Some(class.number);
        }
        let number = (1..=CLASS_BITS).find(|n| !self.numbers.contains(n))?;
        self.numbers.insert(number);
        self.insert(pick, number, 1);
        self.fresh.push((pick, number));
        Some(number)
    }

    fn has_room(&self, pick: EndpointSelector) -> bool {
        is_common(pick) || self.uncommon < MAX_UNCOMMON_CLASSES
    }

    fn insert(&mut self, pick: EndpointSelector, number: u32, lists: u32) {
        self.uncommon += usize::from(!is_common(pick));
        self.entries.insert(pick, SelectorClass { number, lists });
    }

    /// The classes added since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<(EndpointSelector, u32)> {
        std::mem::take(&mut self.fresh)
    }

    /// Removes a list of a namespace as a user of a selector.
    pub(super) fn release(&mut self, namespace: &str, pick: EndpointSelector) {
        if let Some(class) = self.entries.get_mut(&pick) {
            class.lists = class.lists.saturating_sub(1);
        }
        self.shares.refund(namespace, pick);
    }

    /// All selectors with their class numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EndpointSelector, u32)> {
        self.entries
            .iter()
            .map(|(pick, class)| (*pick, class.number))
    }

    /// Some class is used by no list, or by no list of a namespace that is charged for it.
    pub(super) fn has_unused(&self) -> bool {
        self.shares.has_unused() || self.entries.values().any(|class| class.lists == 0)
    }

    /// Removes and returns the classes that no list uses.
    pub(super) fn take_unused(&mut self) -> Vec<(EndpointSelector, u32)> {
        self.shares.forget_unused();
        let unused: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, class)| class.lists == 0)
            .map(|(pick, _)| *pick)
            .collect();
        unused
            .into_iter()
            .filter_map(|pick| {
                let SelectorClass { number, .. } = self.entries.remove(&pick)?;
                self.numbers.remove(&number);
                self.uncommon -= usize::from(!is_common(pick));
                Some((pick, number))
            })
            .collect()
    }
}
