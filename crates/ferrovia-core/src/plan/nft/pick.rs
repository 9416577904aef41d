//! Ways to pick an endpoint from a list, and the chains that do it.
//!
//! A chain is shared by all lists that pick in the same way: as many slots, the same affinity time-out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::base::ChainRules;
use super::layout::{CLASS_BITS, LIST_BITS, LOCAL, PORT_BITS, SetId, client_key};
use super::share::{Accounts, UNCOMMON, is_common};
use crate::dialect::nft::{Field, Match, Name, PriorityValue, Rule, Sense, SetUpdate, Statement};

/// How to pick. Prints as, and is read from, the name of its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Pick {
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

impl fmt::Display for Pick {
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

impl FromStr for Pick {
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
        // `pick-02` is not a name we give.
        if pick.to_string() == name {
            Ok(pick)
        } else {
            Err(())
        }
    }
}

impl Pick {
    /// How many slots there are to pick from.
    pub(super) fn slots(self) -> u32 {
        let (Self::Random { slots } | Self::SourceHash { slots } | Self::Sticky { slots, .. }) =
            self;
        slots
    }

    /// The name of the chain.
    pub(super) fn chain(self) -> Name {
        self.to_string().into()
    }

    /// The chains it needs, those that are jumped to first.
    pub(super) fn chains(self) -> Vec<ChainRules> {
        match self {
            Self::Random { slots } => vec![self.rules(pick_slot(Field::Random(slots)))],
            Self::SourceHash { slots } => vec![self.rules(pick_slot(Field::SourceHash(slots)))],
            Self::Sticky {
                local,
                timeout,
                slots,
            } => vec![
                ChainRules::plain(stick_chain(timeout), stick(timeout)),
                self.rules(pick_sticky(local, timeout, slots)),
            ],
        }
    }

    fn rules(self, rules: Vec<Rule>) -> ChainRules {
        ChainRules::plain(self.chain(), rules)
    }
}

/// The chain that remembers a client's endpoint and sends the connection there.
fn stick_chain(timeout: u32) -> Name {
    format!("{STICK}{timeout}").into()
}

/// How the names of chains begin that remember clients.
pub(super) const STICK: &str = "stick-";

fn keep_list() -> Rule {
    Rule::always(Statement::SetPriority(PriorityValue::Bits(LIST_BITS)))
}

fn pick_slot(slot: Field) -> Vec<Rule> {
    let key = vec![Field::L4Proto, Field::Priority, slot];
    vec![
        keep_list(),
        Rule::always(Statement::Dnat(key, SetId::Endpoints.name().into())),
    ]
}

/// A client that is remembered goes where it went, if that endpoint is still in this list. If not, it is forgotten (an update would
/// keep the old endpoint) and gets the slot its address hashes to: a client that cannot be remembered because the map is full still gets
/// the same endpoint for as long as the list stays the same.
fn pick_sticky(local: bool, timeout: u32, slots: u32) -> Vec<Rule> {
    let endpoint = vec![Field::L4Proto, Field::Priority];
    let slot = vec![Field::PriorityBits(LIST_BITS), Field::SourceHash(slots)];
    let stick = || Statement::Goto(stick_chain(timeout));
    let set = |value| Rule::always(Statement::SetPriority(value));
    let read = |key, map: SetId| set(PriorityValue::Map(key, map.name().into()));
    // The client may have been remembered by way of the other list, or not at all.
    let this_list = if local {
        PriorityValue::With(LOCAL)
    } else {
        PriorityValue::Bits(!LOCAL)
    };
    vec![
        // In a rule of its own: nft cannot load a masked field in the key of `map` here.
        set(PriorityValue::Bits(PORT_BITS)),
        read(vec![Field::Saddr, Field::Priority], SetId::Affinity),
        set(this_list),
        Rule::when(Match::InSet(
            endpoint,
            SetId::StickyEndpoints.name().into(),
            Sense::Is,
        ))
        .then(stick()),
        Rule::always(Statement::Dynamic(SetUpdate::Delete {
            map: SetId::Affinity.name().into(),
            key: client_key(),
        })),
        read(slot, SetId::StickySlots),
        Rule::always(stick()),
    ]
}

fn stick(timeout: u32) -> Vec<Rule> {
    let remember = SetUpdate::Refresh {
        map: SetId::Affinity.name().into(),
        key: client_key(),
        timeout,
    };
    let translate = || {
        let endpoint = vec![Field::L4Proto, Field::Priority];
        Statement::Dnat(endpoint, SetId::StickyEndpoints.name().into())
    };
    vec![
        Rule::always(Statement::Dynamic(remember)).then(translate()),
        // A rule ends where the map is full, so only clients that were not remembered get here. The daemon watches the counter.
        Rule::always(Statement::Counter)
            .then(translate())
            .because("no room to remember the client"),
    ]
}

/// Random picks among so many slots have their chains from the beginning and for good. The kernel walks a whole map when a new chain
/// first refers to it, which takes 20 ms for 100,000 endpoints; at the beginning the map is empty. The larger ones are those that other
/// numbers of slots are rounded to.
const PERMANENT: [u32; 26] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
    8192, 16384,
];

/// The ways to pick that are in use, each with its number in ids.
#[derive(Debug, Default)]
pub(super) struct Classes {
    entries: BTreeMap<Pick, Class>,
    numbers: BTreeSet<u32>,
    /// How many of the entries are not common.
    uncommon: usize,
    accounts: Accounts,
    fresh: Vec<(Pick, u32)>,
}

#[derive(Debug)]
struct Class {
    number: u32,
    lists: u32,
}

impl Classes {
    /// Makes the permanent ways, unless they were taken over. They count as used.
    pub(super) fn make_permanent(&mut self) {
        for slots in PERMANENT {
            self.hold(Pick::Random { slots });
        }
    }

    /// Takes over a number that is in use in the kernel. An earlier version may have used more uncommon ways than there is room for.
    pub(super) fn adopt(&mut self, pick: Pick, number: u32) {
        let fits = (1..=CLASS_BITS).contains(&number) && self.has_room(pick);
        if fits && !self.entries.contains_key(&pick) && self.numbers.insert(number) {
            self.insert(pick, number, 0);
        }
    }

    /// Notes that one more list of a namespace picks so. None if the namespace has used its share, or if all namespaces together
    /// have.
    pub(super) fn acquire(&mut self, namespace: &str, pick: Pick) -> Option<u32> {
        if is_common(pick) {
            return self.hold(pick);
        }
        let is_known = self.entries.contains_key(&pick);
        if !(is_known || self.has_room(pick)) || !self.accounts.charge(namespace, pick) {
            return None;
        }
        self.hold(pick)
    }

    /// Notes one more user of a way, whosever it is.
    pub(super) fn hold(&mut self, pick: Pick) -> Option<u32> {
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

    fn has_room(&self, pick: Pick) -> bool {
        is_common(pick) || self.uncommon < UNCOMMON
    }

    fn insert(&mut self, pick: Pick, number: u32, lists: u32) {
        self.uncommon += usize::from(!is_common(pick));
        self.entries.insert(pick, Class { number, lists });
    }

    /// The ways that have come up since this was last asked.
    pub(super) fn take_fresh(&mut self) -> Vec<(Pick, u32)> {
        std::mem::take(&mut self.fresh)
    }

    /// Notes that one list of a namespace less picks so.
    pub(super) fn release(&mut self, namespace: &str, pick: Pick) {
        if let Some(class) = self.entries.get_mut(&pick) {
            class.lists = class.lists.saturating_sub(1);
        }
        self.accounts.refund(namespace, pick);
    }

    /// All ways with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Pick, u32)> {
        self.entries
            .iter()
            .map(|(pick, class)| (*pick, class.number))
    }

    /// Some way is used by no list, or by none of a namespace that is charged for it.
    pub(super) fn has_unused(&self) -> bool {
        self.accounts.has_unused() || self.entries.values().any(|class| class.lists == 0)
    }

    /// Forgets the ways that no list uses.
    pub(super) fn take_unused(&mut self) -> Vec<(Pick, u32)> {
        self.accounts.forget_unused();
        let unused: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, class)| class.lists == 0)
            .map(|(pick, _)| *pick)
            .collect();
        unused
            .into_iter()
            .filter_map(|pick| {
                let Class { number, .. } = self.entries.remove(&pick)?;
                self.numbers.remove(&number);
                self.uncommon -= usize::from(!is_common(pick));
                Some((pick, number))
            })
            .collect()
    }
}
