//! Things that come and go, each under a number that is not given again soon: what an event of the kernel is distinguished by.

/// Names one thing in a [`Slab`]. Once the thing is gone the name means nothing, although its place may be taken by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SlabKey {
    index: u32,
    generation: u32,
}

/// Generations count to here and start again: three bits of a token stay free for its kind.
const GENERATIONS: u32 = 1 << 29;

impl SlabKey {
    /// As a number below 2⁶¹.
    pub(super) fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The reverse of [`Self::pack`].
    pub(super) fn unpack(number: u64) -> Self {
        Self {
            index: number as u32,
            generation: (number >> 32) as u32 % GENERATIONS,
        }
    }
}

/// Things of one kind, in places that are used again.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<SlabEntry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct SlabEntry<T> {
    generation: u32,
    thing: Option<T>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Puts a thing in.
    pub(super) fn insert(&mut self, thing: T) -> SlabKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(SlabEntry {
                generation: 0,
                thing: None,
            });
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[index as usize];
        let key = SlabKey {
            index,
            generation: place.generation,
        };
        place.thing = Some(thing);
        key
    }

    pub(super) fn get(&self, key: SlabKey) -> Option<&T> {
        let place = self.places.get(key.index as usize)?;
        place
            .thing
            .as_ref()
            .filter(|_| place.generation == key.generation)
    }

    pub(super) fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        let generation = place.generation;
        place
            .thing
            .as_mut()
            .filter(|_| generation == key.generation)
    }

    /// Takes a thing out.
    pub(super) fn remove(&mut self, key: SlabKey) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation {
            return None;
        }
        let thing = place.thing.take()?;
        place.generation = (place.generation + 1) % GENERATIONS;
        self.free.push(key.index);
        Some(thing)
    }

    /// The keys of those that meet a condition.
    pub(super) fn keys_where(&self, condition: impl Fn(&T) -> bool) -> Vec<SlabKey> {
        let places = self.places.iter().enumerate();
        let meets = places.filter(|(_, place)| place.thing.as_ref().is_some_and(&condition));
        meets
            .map(|(index, place)| SlabKey {
                index: index as u32,
                generation: place.generation,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_dies_with_its_thing() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(slab.get(first), None, "the place is another's now");
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut "second"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn keys_survive_packing() {
        let mut slab = Slab::new();
        for round in 0..3 {
            let key = slab.insert(round);
            assert_eq!(SlabKey::unpack(key.pack()), key);
            assert!(key.pack() < 1 << 61);
            slab.remove(key);
        }
    }

    #[test]
    fn keys_are_found_by_condition() {
        let mut slab = Slab::new();
        let keys: Vec<SlabKey> = (0..4).map(|number| slab.insert(number)).collect();
        slab.remove(keys[2]);
        assert_eq!(slab.keys_where(|number| number % 2 == 0), [keys[0]]);
    }
}
