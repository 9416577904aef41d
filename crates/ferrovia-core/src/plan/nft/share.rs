//! Which classes a list may use, so that the Services of one namespace cannot take the classes of others.
//!
//! There are 2,047 classes for all Services of a node, and whoever writes Services chooses affinity time-outs, numbers of endpoints and
//! weights. *Common* ways to pick are those of nearly every Service, and those that others are rounded to. There is room for all common
//! ways at once, so they are never refused. Of the others a namespace may use [`SHARE`] at a time, whatever other namespaces use.
//! A list beyond that is rounded: affinity stays, its time-out becomes longer, and weights are approximated.

use std::collections::{BTreeMap, HashMap};

use super::pick::Pick;
use super::slots::HASH_SIZES;
use crate::model::{DEFAULT_AFFINITY, MAX_AFFINITY};

/// How many uncommon ways to pick a namespace may use.
pub(super) const SHARE: usize = 64;
/// How many uncommon ways to pick all namespaces may use together. The other numbers are for the common ways.
pub(super) const UNCOMMON: usize = 1024;

/// Random picks among up to so many slots are common.
const COMMON_RANDOM: u32 = 256;
/// Affinity with the API's default time-out among up to so many slots is common.
const COMMON_STICKY: u32 = 128;
/// The most slots of a rounded list.
const MAX_ROUNDED: u32 = 1 << 17;
/// The most slots of a rounded list with affinity, which is as many as any has.
pub(super) const MAX_ROUNDED_STICKY: u32 = 4096;
/// The fewest slots of a rounded hash table.
const MIN_ROUNDED_HASH: u32 = 1024;
/// A rounded list has at least so many times as many slots, as far as its most allow, for shares to stay close to what they were.
const FINENESS: u32 = 4;

/// There is room for all such ways at once.
pub(super) fn is_common(pick: Pick) -> bool {
    match pick {
        Pick::Random { slots } => slots <= COMMON_RANDOM || is_round(slots, MAX_ROUNDED),
        Pick::SourceHash { slots } => {
            HASH_SIZES.contains(&(slots as usize))
                || (slots >= MIN_ROUNDED_HASH && is_round(slots, MAX_ROUNDED))
        }
        Pick::Sticky { timeout, slots, .. } => {
            (timeout == DEFAULT_AFFINITY && slots <= COMMON_STICKY)
                || (timeout == rounded_timeout(timeout) && is_round(slots, MAX_ROUNDED_STICKY))
        }
    }
}

/// The common way that comes closest, with no fewer slots and no shorter time-out.
pub(super) fn rounded(pick: Pick) -> Pick {
    if is_common(pick) {
        return pick;
    }
    match pick {
        Pick::Random { slots } => Pick::Random {
            slots: rounded_slots(slots, MAX_ROUNDED),
        },
        Pick::SourceHash { slots } => Pick::SourceHash {
            slots: rounded_slots(slots.max(MIN_ROUNDED_HASH), MAX_ROUNDED),
        },
        Pick::Sticky {
            local,
            timeout,
            slots,
        } => Pick::Sticky {
            local,
            timeout: rounded_timeout(timeout),
            slots: rounded_slots(slots, MAX_ROUNDED_STICKY),
        },
    }
}

fn is_round(slots: u32, most: u32) -> bool {
    slots.is_power_of_two() && slots <= most
}

fn rounded_slots(slots: u32, most: u32) -> u32 {
    let fine = slots.saturating_mul(FINENESS).min(most);
    fine.checked_next_power_of_two().unwrap_or(most).min(most)
}

fn rounded_timeout(timeout: u32) -> u32 {
    match timeout {
        DEFAULT_AFFINITY => timeout,
        _ => timeout
            .checked_next_power_of_two()
            .map_or(MAX_AFFINITY, |longer| longer.min(MAX_AFFINITY)),
    }
}

/// The uncommon ways that namespaces use, with the number of lists that use each. One that no list uses any more counts until its
/// number is free again: Services that change all the time could take every number otherwise.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    namespaces: HashMap<Box<str>, BTreeMap<Pick, u32>>,
}

impl Accounts {
    /// Notes that one more list of a namespace picks so, unless the namespace has used its share.
    pub(super) fn charge(&mut self, namespace: &str, pick: Pick) -> bool {
        let used = self.namespaces.entry(namespace.into()).or_default();
        if used.len() >= SHARE && !used.contains_key(&pick) {
            return false;
        }
        *used.entry(pick).or_default() += 1;
        true
    }

    /// Notes that one list of a namespace less picks so.
    pub(super) fn refund(&mut self, namespace: &str, pick: Pick) {
        if let Some(lists) = (self.namespaces.get_mut(namespace)).and_then(|it| it.get_mut(&pick)) {
            *lists = lists.saturating_sub(1);
        }
    }

    /// Some namespace is charged for a way that none of its lists uses.
    pub(super) fn has_unused(&self) -> bool {
        let mut charged = self.namespaces.values();
        charged.any(|used| used.values().any(|lists| *lists == 0))
    }

    /// Ends those charges.
    pub(super) fn forget_unused(&mut self) {
        self.namespaces.retain(|_, used| {
            used.retain(|_, lists| *lists > 0);
            !used.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::nft::layout::CLASS_BITS;

    fn all_common() -> Vec<Pick> {
        let slots = 1..=2 * MAX_ROUNDED;
        let random = slots.clone().map(|slots| Pick::Random { slots });
        let hash = slots.map(|slots| Pick::SourceHash { slots });
        let timeouts = (0..=17).map(|bit| rounded_timeout(1 << bit));
        let sticky = timeouts.chain([DEFAULT_AFFINITY]).flat_map(|timeout| {
            (1..=2 * MAX_ROUNDED_STICKY).flat_map(move |slots| {
                [false, true].map(|local| Pick::Sticky {
                    local,
                    timeout,
                    slots,
                })
            })
        });
        let mut all: Vec<Pick> = random.chain(hash).chain(sticky).collect();
        all.retain(|pick| is_common(*pick));
        all.sort_unstable();
        all.dedup();
        all
    }

    #[test]
    fn there_is_a_number_for_every_common_way_and_for_the_uncommon_ones_besides() {
        let common = all_common().len();
        assert!(
            common + UNCOMMON <= CLASS_BITS as usize,
            "{common} common ways"
        );
    }

    #[test]
    fn rounding_gives_a_common_way_with_no_fewer_slots_and_no_shorter_time_out() {
        for slots in (1..=MAX_ROUNDED).step_by(7) {
            for pick in [Pick::Random { slots }, Pick::SourceHash { slots }] {
                let (Pick::Random { slots: more } | Pick::SourceHash { slots: more }) =
                    rounded(pick)
                else {
                    panic!("{pick} became {}", rounded(pick))
                };
                assert!(is_common(rounded(pick)) && more >= slots, "{pick}");
            }
        }
        for timeout in 1..=MAX_AFFINITY {
            let pick = Pick::Sticky {
                local: false,
                timeout,
                slots: timeout % MAX_ROUNDED_STICKY + 1,
            };
            let Pick::Sticky {
                timeout: longer,
                slots: more,
                ..
            } = rounded(pick)
            else {
                panic!("{pick} became {}", rounded(pick))
            };
            assert!(is_common(rounded(pick)), "{pick}");
            assert!(longer >= timeout && more > timeout % MAX_ROUNDED_STICKY);
        }
    }

    #[test]
    fn the_usual_ways_to_pick_are_common() {
        for slots in 1..=100 {
            assert!(is_common(Pick::Random { slots }));
            assert!(is_common(Pick::Sticky {
                local: slots % 2 == 0,
                timeout: DEFAULT_AFFINITY,
                slots
            }));
        }
    }
}
