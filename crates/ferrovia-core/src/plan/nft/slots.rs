//! Which endpoint stands in which slot of a list.
//!
//! An endpoint's share of new connections is its share of slots. A list keeps its order as far as it can: when an endpoint goes, the last
//! slots fill its place, so a change writes a handful of elements however long the list is.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use crate::desired::Endpoint;

/// Where a connection is sent.
pub(super) type SlotTarget = (IpAddr, u16);

/// PortLists with weights have at most so many slots, unless they have more endpoints.
const MAX_WEIGHTED_SLOTS: u64 = 4096;

/// Sizes of hash tables: primes, each about four times the last.
pub(super) const HASH_SIZES: [usize; 5] = [61, 251, 1021, 4093, 16381];
/// PortLists with more endpoints than this have no hash table.
pub(super) const MAX_HASHED: usize = 1000;
/// How many slots of a hash table an endpoint should have at least, for shares to come out even.
const HASH_SLOTS_PER_ENDPOINT: usize = 16;

/// How many slots each endpoint gets.
fn shares(endpoints: &[Endpoint]) -> Vec<(SlotTarget, u32)> {
    let divisor = endpoints
        .iter()
        .fold(0, |acc, e| gcd(acc, u64::from(e.weight)))
        .max(1);
    let total: u64 = endpoints
        .iter()
        .map(|e| u64::from(e.weight) / divisor)
        .sum();
    let limit = MAX_WEIGHTED_SLOTS.max(endpoints.len() as u64);
    endpoints
        .iter()
        .map(|e| {
            let exact = u64::from(e.weight) / divisor;
            // Rounded to the nearest, but never to zero.
            let slots = if total <= limit {
                exact
            } else {
                ((exact * limit + total / 2) / total).max(1)
            };
            ((e.ip, e.port), slots as u32)
        })
        .collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Slots for picking at random, as close to `before` as possible.
pub(super) fn arrange(before: &[SlotTarget], endpoints: &[Endpoint]) -> Vec<SlotTarget> {
    place(before, &shares(endpoints))
}

/// Like [`arrange`], but with a given number of slots. Each endpoint has at least one slot, and the others are in proportion to weights.
/// Endpoints beyond the number of slots have none.
pub(super) fn arrange_in(
    before: &[SlotTarget],
    endpoints: &[Endpoint],
    slots: u32,
) -> Vec<SlotTarget> {
    let endpoints = &endpoints[..endpoints.len().min(slots as usize)];
    let total: u64 = endpoints.iter().map(|e| u64::from(e.weight)).sum();
    let spare = u64::from(slots) - endpoints.len() as u64;
    let mut passed = 0;
    let shares: Vec<_> = endpoints
        .iter()
        .map(|e| {
            let until = |weights: u64| weights * spare / total.max(1);
            let from = until(passed);
            passed += u64::from(e.weight);
            ((e.ip, e.port), 1 + (until(passed) - from) as u32)
        })
        .collect();
    place(before, &shares)
}

/// Assigns each target its number of slots, as close to `before` as possible.
fn place(before: &[SlotTarget], shares: &[(SlotTarget, u32)]) -> Vec<SlotTarget> {
    let repeat = |(target, slots): (SlotTarget, u32)| std::iter::repeat_n(target, slots as usize);
    if before.is_empty() {
        return shares.iter().copied().flat_map(repeat).collect();
    }
    let len = shares.iter().map(|(_, slots)| *slots as usize).sum();
    let mut missing: HashMap<SlotTarget, u32> = shares.iter().copied().collect();
    let mut slots: Vec<Option<SlotTarget>> = vec![None; len];
    for (slot, target) in slots.iter_mut().zip(before) {
        if let Some(count) = missing.get_mut(target).filter(|count| **count > 0) {
            *count -= 1;
            *slot = Some(*target);
        }
    }
    // In the order of the endpoints, not of the hash map: the same history gives the same slots.
    let mut fill = shares.iter().flat_map(|(target, _)| {
        let count = missing.get(target).copied().unwrap_or_default();
        repeat((*target, count))
    });
    slots
        .into_iter()
        .filter_map(|slot| slot.or_else(|| fill.next()))
        .collect()
}

/// Slots for selection by a hash: each slot goes to the endpoint with the lowest cost (rendezvous hashing), so a change moves only the
/// slots of the endpoints concerned.
///
/// Beyond some number of endpoints the table would cost seconds to fill; then each endpoint has one slot, whatever its weight.
pub(super) fn hash_table(endpoints: &[Endpoint]) -> Vec<SlotTarget> {
    if endpoints.len() > MAX_HASHED {
        return endpoints.iter().map(|e| (e.ip, e.port)).collect();
    }
    let wanted = endpoints.len() * HASH_SLOTS_PER_ENDPOINT;
    let size = HASH_SIZES
        .into_iter()
        .find(|size| *size >= wanted)
        .unwrap_or(HASH_SIZES[4]);
    let seeds: Vec<u64> = endpoints.iter().map(seed).collect();
    (0..size as u64)
        .filter_map(|slot| {
            let cost =
                |(i, e): (usize, &Endpoint)| (cost(seeds[i], slot, e.weight), (e.ip, e.port));
            endpoints
                .iter()
                .enumerate()
                .map(cost)
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .map(|(_, target)| target)
        })
        .collect()
}

/// The cost of a slot for an endpoint; the lowest gets it. Dividing by the weight makes shares proportional to weights.
fn cost(seed: u64, slot: u64, weight: u16) -> f64 {
    let hash = mix(seed ^ mix(slot));
    let uniform = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -uniform.ln() / f64::from(weight.max(1))
}

fn seed(endpoint: &Endpoint) -> u64 {
    let bits = match endpoint.ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    mix(mix(mix(bits as u64) ^ (bits >> 64) as u64) ^ u64::from(endpoint.port))
}

/// The finaliser of splitmix64: every bit of the input moves every bit of the output.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Numbers for the endpoints of a service port with affinity; an endpoint keeps its number. Number `n` is at index `n - 1`.
pub(super) fn number(
    before: &[Option<SlotTarget>],
    mut wanted: Vec<SlotTarget>,
    limit: usize,
) -> Vec<Option<SlotTarget>> {
    wanted.sort_unstable();
    wanted.dedup();
    wanted.truncate(limit);
    let keeps = |target: &SlotTarget| wanted.binary_search(target).is_ok();
    let mut numbers: Vec<_> = before.iter().map(|held| held.filter(keeps)).collect();
    let held: HashSet<SlotTarget> = numbers.iter().flatten().copied().collect();
    let mut newcomers = wanted.into_iter().filter(|target| !held.contains(target));
    for free in numbers.iter_mut().filter(|number| number.is_none()) {
        *free = newcomers.next();
    }
    numbers.extend(newcomers.map(Some));
    while numbers.last().is_some_and(Option::is_none) {
        numbers.pop();
    }
    numbers
}
