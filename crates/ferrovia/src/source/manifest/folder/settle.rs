//! From what files define to what the rest of the world is told: the first definition of an object is in force, and what changed about
//! that becomes events.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use ferrovia_core::store::Event;
use ferrovia_core::wire::Kind;

use super::super::claims::{InForce, ObjectKey};
use super::super::content;
use super::super::digest::Digest;
use super::super::problem::Problem;
use super::{Batch, Folder, Scan};

impl Folder {
    /// Compares what should be in force with what was told last, and tells the difference.
    pub(super) fn settle(&mut self, mut scan: Scan) -> Batch {
        self.reread_heirs(&mut scan);
        let Scan {
            mut batch,
            touched,
            mut fresh,
        } = scan;
        for key in touched {
            let Some(entry) = self.claims.entry(&key) else {
                continue;
            };
            let Some(claim) = entry.first().cloned() else {
                if entry.in_force.is_some() {
                    batch.events.push(deleted(&key));
                }
                self.claims.remove(&key);
                continue;
            };
            let before = entry.in_force.as_ref();
            let changes_hands = before.is_some_and(|before| before.file != claim.file);
            if before.is_none_or(|before| before.digest != claim.digest) {
                let Some(object) = fresh.remove(&(Arc::clone(&claim.file), Arc::clone(&key)))
                else {
                    self.waiting.insert(key);
                    continue;
                };
                batch.events.push(Event::Applied(object));
            }
            if changes_hands {
                let what = format!("{key} is now taken from here");
                batch
                    .problems
                    .push(Problem::info(&claim.file, what).at_line(claim.line));
            }
            entry.in_force = Some(InForce {
                file: claim.file,
                digest: claim.digest,
            });
        }
        if !self.is_loaded {
            batch.events.extend(Kind::ALL.map(Event::Listed));
            self.is_loaded = true;
        }
        batch
    }

    /// Reads files again whose waiting objects come into force, each file once. What cannot be read now, or is
    /// no longer what it was, is tried again at the next rescan; until then what is in force stays.
    fn reread_heirs(&mut self, scan: &mut Scan) {
        let mut wanted: BTreeMap<Arc<Path>, HashMap<Arc<ObjectKey>, Digest>> = BTreeMap::new();
        for key in &scan.touched {
            let Some(entry) = self.claims.entry(key) else {
                continue;
            };
            let Some(heir) = entry.first() else {
                continue;
            };
            let told = entry.in_force.as_ref().map(|before| before.digest);
            let is_fresh = scan
                .fresh
                .contains_key(&(Arc::clone(&heir.file), Arc::clone(key)));
            if told != Some(heir.digest) && !is_fresh {
                let of_file = wanted.entry(Arc::clone(&heir.file)).or_default();
                of_file.insert(Arc::clone(key), heir.digest);
            }
        }
        for (path, digests) in wanted {
            for object in content::objects(&path, self.size_limit) {
                let key = Arc::new(ObjectKey::of(&object));
                if digests
                    .get(&key)
                    .is_some_and(|digest| *digest == Digest::of_object(&object))
                {
                    // The first definition in a file counts.
                    scan.fresh.entry((Arc::clone(&path), key)).or_insert(object);
                }
            }
        }
    }
}

fn deleted(key: &ObjectKey) -> Event {
    Event::Deleted {
        kind: key.kind,
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
    }
}
