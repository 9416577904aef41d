//! Which selector classes a list may use, so that the Services of one namespace cannot use up the classes that all namespaces share.
//!
//! There are 2,047 classes for all Services of a node, and the authors of Services choose affinity timeouts, numbers of endpoints and
//! weights. *Common* selectors are those of nearly every Service, and those that others are rounded to. There are class numbers for all
//! common selectors at once, so they are never refused. Of the *uncommon* ones a namespace may use [`UNCOMMON_CLASSES_PER_NAMESPACE`] at a
//! time, as long as all namespaces together use fewer than [`MAX_UNCOMMON_CLASSES`]. A list beyond that is rounded: it keeps its affinity with
//! a longer timeout, and weights are approximated.

use std::collections::{BTreeMap, HashMap};

use super::endpoint_selector::EndpointSelector;
use super::slots::HASH_SIZES;
use crate::model::{DEFAULT_AFFINITY, MAX_AFFINITY};

/// The most uncommon selectors that one namespace may use.
pub(super) const UNCOMMON_CLASSES_PER_NAMESPACE: usize = 64;
/// The most uncommon selectors that all namespaces may use together. The other class numbers are for common selectors.
pub(super) const MAX_UNCOMMON_CLASSES: usize = 1024;

/// Random selection among up to this many slots is common.
const COMMON_RANDOM: u32 = 256;
/// Affinity with the API's default timeout among up to this many slots is common.
const COMMON_STICKY: u32 = 128;
/// The most slots of a rounded list.
const MAX_ROUNDED: u32 = 1 << 17;
/// The most slots of a rounded list with affinity, which is as many as any has.
pub(super) const MAX_ROUNDED_STICKY: u32 = 4096;
/// The fewest slots of a rounded hash table.
const MIN_ROUNDED_HASH: u32 = 1024;
/// A rounded list has at least this many times its slots, up to the maximum, so that shares stay close to the exact ones.
const ROUNDING_FACTOR: u32 = 4;

/// Whether a selector is common. There are class numbers for all common selectors at once.
pub(super) fn is_common(pick: EndpointSelector) -> bool {
    match pick {
        EndpointSelector::Random { slots } => {
            slots <= COMMON_RANDOM || is_round(slots, MAX_ROUNDED)
        }
        EndpointSelector::SourceHash { slots } => {
            HASH_SIZES.contains(&(slots as usize))
                || (slots >= MIN_ROUNDED_HASH && is_round(slots, MAX_ROUNDED))
        }
        EndpointSelector::Sticky { timeout, slots, .. } => {
            (timeout == DEFAULT_AFFINITY && slots <= COMMON_STICKY)
                || (timeout == rounded_timeout(timeout) && is_round(slots, MAX_ROUNDED_STICKY))
        }
    }
}

/// The closest common selector with no fewer slots and no shorter timeout.
pub(super) fn rounded(pick: EndpointSelector) -> EndpointSelector {
    if is_common(pick) {
        return pick;
    }
    match pick {
        EndpointSelector::Random { slots } => EndpointSelector::Random {
            slots: rounded_slots(slots, MAX_ROUNDED),
        },
        EndpointSelector::SourceHash { slots } => EndpointSelector::SourceHash {
            slots: rounded_slots(slots.max(MIN_ROUNDED_HASH), MAX_ROUNDED),
        },
        EndpointSelector::Sticky {
            local,
            timeout,
            slots,
        } => EndpointSelector::Sticky {
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
    let fine = slots.saturating_mul(ROUNDING_FACTOR).min(most);
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

/// The uncommon selectors that each namespace uses, with the number of lists that use each. A selector without lists counts until its
/// class number is free again. Otherwise Services that change all the time could use up every class number.
#[derive(Debug, Default)]
pub(super) struct NamespaceShares {
    namespaces: HashMap<Box<str>, BTreeMap<EndpointSelector, u32>>,
}

impl NamespaceShares {
    /// Adds a list of a namespace as a user of a selector; `false` if the namespace already uses as many as it may.
    pub(super) fn charge(&mut self, namespace: &str, pick: EndpointSelector) -> bool {
        let used = self.namespaces.entry(namespace.into()).or_default();
        if used.len() >= UNCOMMON_CLASSES_PER_NAMESPACE && !used.contains_key(&pick) {
            return false;
        }
        *used.entry(pick).or_default() += 1;
        true
    }

    /// Removes a list of a namespace as a user of a selector.
    pub(super) fn refund(&mut self, namespace: &str, pick: EndpointSelector) {
        if let Some(lists) = (self.namespaces.get_mut(namespace)).and_then(|it| it.get_mut(&pick)) {
            *lists = lists.saturating_sub(1);
        }
    }

    /// Some namespace is charged for a selector that none of its lists uses.
    pub(super) fn has_unused(&self) -> bool {
        let mut charged = self.namespaces.values();
        charged.any(|used| used.values().any(|lists| *lists == 0))
    }

    /// Removes those charges.
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

    fn all_common() -> Vec<EndpointSelector> {
        let slots = 1..=2 * MAX_ROUNDED;
        let random = slots
            .clone()
            .map(|slots| EndpointSelector::Random { slots });
        let hash = slots.map(|slots| EndpointSelector::SourceHash { slots });
        let timeouts = (0..=17).map(|bit| rounded_timeout(1 << bit));
        let sticky = timeouts.chain([DEFAULT_AFFINITY]).flat_map(|timeout| {
            (1..=2 * MAX_ROUNDED_STICKY).flat_map(move |slots| {
                [false, true].map(|local| EndpointSelector::Sticky {
                    local,
                    timeout,
                    slots,
                })
            })
        });
        let mut all: Vec<EndpointSelector> = random.chain(hash).chain(sticky).collect();
        all.retain(|pick| is_common(*pick));
        all.sort_unstable();
        all.dedup();
        all
    }

    #[test]
    fn class_numbers_suffice_for_all_common_and_the_most_uncommon_selectors() {
        let common = all_common().len();
        assert!(
            common + MAX_UNCOMMON_CLASSES <= CLASS_BITS as usize,
            "{common} common selectors"
        );
    }

    #[test]
    fn rounding_gives_a_common_selector_with_no_fewer_slots_and_no_shorter_timeout() {
        for slots in (1..=MAX_ROUNDED).step_by(7) {
            for pick in [
                EndpointSelector::Random { slots },
                EndpointSelector::SourceHash { slots },
            ] {
                let (EndpointSelector::Random { slots: more }
                | EndpointSelector::SourceHash { slots: more }) = rounded(pick)
                else {
                    panic!("{pick} became {}", rounded(pick))
                };
                assert!(is_common(rounded(pick)) && more >= slots, "{pick}");
            }
        }
        for timeout in 1..=MAX_AFFINITY {
            let pick = EndpointSelector::Sticky {
                local: false,
                timeout,
                slots: timeout % MAX_ROUNDED_STICKY + 1,
            };
            let EndpointSelector::Sticky {
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
    fn selectors_of_typical_services_are_common() {
        for slots in 1..=100 {
            assert!(is_common(EndpointSelector::Random { slots }));
            assert!(is_common(EndpointSelector::Sticky {
                local: slots % 2 == 0,
                timeout: DEFAULT_AFFINITY,
                slots
            }));
        }
    }
}
