//! One picture of a table: the questions, in their order, and what is made of the answers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use ferrovia_core::dialect::nft::{
    Element, ElementKey, NftObserved, ObservedElement, ObservedSet, SetSpec,
};
use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::nf_tables::{
    NFT_MSG_GETCHAIN, NFT_MSG_GETOBJ, NFT_MSG_GETRULE, NFT_MSG_GETSET, NFT_MSG_GETSETELEM,
    NFT_MSG_GETTABLE, NFTA_OBJ_TABLE, NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET,
    NFTA_SET_ELEM_LIST_TABLE,
};
use ferrovia_netlink::{self as netlink, Message, Writer};

use super::decode::{RawElement, RawElements};
use super::{Error, Nft, decode, failed, fixed_header, message_type, oddities, sets};

/// How often elements are read again because their hash table was growing, which makes the kernel skip some and repeat others.
const GROWTH_ATTEMPTS: usize = 16;
/// How long to wait for a hash table to finish growing.
const GROWING: Duration = Duration::from_millis(10);

impl Nft {
    /// Asks for everything once. What is committed between two of the questions mixes two states; the caller finds that out.
    pub(super) fn read(
        &mut self,
        family: Family,
        table: &str,
        previous_tables: &[&str],
    ) -> Result<NftObserved, Error> {
        let tables: BTreeMap<String, Vec<String>> = self.dump(
            "list tables",
            NFT_MSG_GETTABLE,
            family,
            |_| {},
            |all: &mut BTreeMap<_, _>, message| {
                let name = decode::table_name(message);
                all.extend(name.map(|name| (name, oddities::of_table(message))));
            },
        )?;
        let mut observed = NftObserved {
            exists: tables.contains_key(table),
            oddities: tables.get(table).cloned().unwrap_or_default(),
            predecessors: tables
                .into_keys()
                .filter(|name| previous_tables.contains(&name.as_str()))
                .collect(),
            ..NftObserved::default()
        };
        if observed.exists {
            self.read_chains(family, table, &mut observed)?;
            self.read_sets(family, table, &mut observed)?;
            self.read_objects(family, table, &mut observed)?;
        }
        Ok(observed)
    }

    /// The elements a set has for some keys, in their order, up to the first that it does not have. A set that is not there has none. Not
    /// for sets of ranges.
    ///
    /// # Errors
    /// If the netlink socket fails.
    pub fn look_up(
        &mut self,
        family: Family,
        table: &str,
        set: &SetSpec,
        keys: &[ElementKey],
    ) -> Result<Vec<(ElementKey, ObservedElement)>, Error> {
        let question = |w: &mut Writer| {
            w.raw(&fixed_header(Some(family)));
            w.text(NFTA_SET_ELEM_LIST_TABLE, table);
            w.text(NFTA_SET_ELEM_LIST_SET, set.name);
            w.nested(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                for key in keys {
                    sets::write_element(w, set, &Element::member(key.clone()), false);
                }
            });
        };
        let broken = failed("look up elements");
        let (found, end): (RawElements, _) = self
            .socket
            .query_each(message_type(NFT_MSG_GETSETELEM), question, decode::elements)
            .map_err(broken)?;
        match end {
            Err(refusal) if refusal.errno != libc::ENOENT => {
                return Err(broken(netlink::Error::Refused(refusal)));
            }
            _ => {}
        }
        let found = found.list.into_iter();
        Ok(found.map(|element| (element.key, element.rest)).collect())
    }

    /// How many chains a table has.
    ///
    /// # Errors
    /// If the netlink socket fails.
    pub fn count_chains(&mut self, family: Family, table: &str) -> Result<usize, Error> {
        self.dump(
            "list chains",
            NFT_MSG_GETCHAIN,
            family,
            |_| {},
            |count: &mut usize, message| {
                *count += usize::from(decode::table_of(message) == Some(table));
            },
        )
    }

    fn read_chains(
        &mut self,
        family: Family,
        table: &str,
        observed: &mut NftObserved,
    ) -> Result<(), Error> {
        // Unlike with rules and sets, the kernel cannot be asked for one table's chains only.
        let ours = |message: &Message<'_>| decode::table_of(message) == Some(table);
        let (chains, odd) = self.dump(
            "list chains",
            NFT_MSG_GETCHAIN,
            family,
            |_| {},
            |(chains, odd): &mut (BTreeMap<_, _>, Vec<_>), message| {
                if ours(message) {
                    chains.extend(decode::chain(message));
                    odd.extend(oddities::of_chain(message));
                }
            },
        )?;
        observed.chains = chains;
        observed.oddities.extend(odd);
        let rules: Vec<_> = self.dump(
            "list rules",
            NFT_MSG_GETRULE,
            family,
            in_table(table),
            |all: &mut Vec<_>, message| {
                all.extend(decode::rule(message, family));
            },
        )?;
        for (chain, code) in rules {
            observed.chains.entry(chain).or_default().rules.push(code);
        }
        Ok(())
    }

    fn read_sets(
        &mut self,
        family: Family,
        table: &str,
        observed: &mut NftObserved,
    ) -> Result<(), Error> {
        let (mut sets, odd) = self.dump(
            "list sets",
            NFT_MSG_GETSET,
            family,
            in_table(table),
            |(sets, odd): &mut (BTreeMap<String, ObservedSet>, Vec<_>), message| {
                sets.extend(decode::set(message));
                odd.extend(oddities::of_set(message));
            },
        )?;
        observed.oddities.extend(odd);
        for (name, set) in sets.iter_mut().filter(|(_, set)| !set.dynamic) {
            let elements = self.read_elements(family, table, name)?;
            let odd = elements.oddities.iter();
            observed
                .oddities
                .extend(odd.map(|odd| format!("set {name} has {odd}")));
            set.elements = join(elements.list, set.interval);
        }
        observed.sets = sets;
        Ok(())
    }

    /// Named objects such as counters and quotas: we have none.
    fn read_objects(
        &mut self,
        family: Family,
        table: &str,
        observed: &mut NftObserved,
    ) -> Result<(), Error> {
        let odd: Vec<_> = self.dump(
            "list named objects",
            NFT_MSG_GETOBJ,
            family,
            in_table(table),
            |all: &mut Vec<_>, message| all.extend(oddities::of_object(message)),
        )?;
        observed.oddities.extend(odd);
        Ok(())
    }

    /// Reads the elements of a set.
    ///
    /// The kernel continues a dump by counting how many elements it has given. A hash table that
    /// grew in between (it does so in the background, some time after a commit) has them in another
    /// order: then some come twice, as many are left out, and nothing reports it. What comes twice
    /// gives it away.
    pub(super) fn read_elements(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
    ) -> Result<RawElements, Error> {
        let of_set = |w: &mut Writer| {
            w.text(NFTA_SET_ELEM_LIST_TABLE, table);
            w.text(NFTA_SET_ELEM_LIST_SET, set);
        };
        for _ in 0..GROWTH_ATTEMPTS {
            let elements: RawElements = self.dump(
                "list elements",
                NFT_MSG_GETSETELEM,
                family,
                of_set,
                decode::elements,
            )?;
            if !has_duplicates(&elements.list) {
                return Ok(elements);
            }
            std::thread::sleep(GROWING);
        }
        Err(failed("list elements")(netlink::Error::DumpInterrupted))
    }
}

/// Narrows a question to one table.
fn in_table(table: &str) -> impl Fn(&mut Writer) {
    move |w| w.text(NFTA_OBJ_TABLE, table)
}

/// The elements by key. A range over one field came in two halves, one over several in one piece.
fn join(elements: Vec<RawElement>, interval: bool) -> HashMap<ElementKey, ObservedElement> {
    let has_two_keys = elements
        .iter()
        .any(|element| element.rest.key_end.is_some());
    if interval && !has_two_keys {
        return decode::join_ranges(elements);
    }
    elements
        .into_iter()
        .map(|element| (element.key, element.rest))
        .collect()
}

fn has_duplicates(elements: &[RawElement]) -> bool {
    let mut seen = HashSet::with_capacity(elements.len());
    !elements
        .iter()
        .all(|element| seen.insert((&element.key, element.ends_range)))
}
