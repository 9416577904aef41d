//! Events in, kernel writes out.

use std::borrow::Borrow;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ferrovia_core::desired::{Builder, Delta, Desired, NodeSettings};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::Warning;
use ferrovia_core::model::node::Node;
use ferrovia_core::store::{Event, Store, Triggers};
use ferrovia_core::trace::{TraceContext, TraceProfile};
use ferrovia_core::wire::Kind;

use super::backend::Backend;
use super::family::{FamilySync, Outcome};
use super::node_wait::{NodeNeed, NodeWait, Wait};
use super::warned::Warned;

/// Everything the proxy knows and the modes it writes with.
pub struct Engine {
    store: Store,
    builder: Builder,
    families: PerFamily<Option<FamilySync>>,
    addresses: Vec<IpAddr>,
    addresses_changed: bool,
    /// Not all objects could be read yet.
    has_unreadable_objects: bool,
    node_wait: NodeWait,
    /// No other process writes in this network namespace.
    is_owner: bool,
    received: Received,
    /// What of that the last sync took in.
    taken: Received,
    warned: Warned,
    /// What was wrong with objects since this was last taken.
    unreported: Vec<Warning>,
}

/// So many warnings wait to be reported to authors. The log has all of them.
const MOST_UNREPORTED: usize = 64;

/// How many events came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// About Services.
    pub services: u64,
    /// About EndpointSlices.
    pub slices: u64,
}

impl Engine {
    /// An engine that knows nothing yet. A family without a backend is left alone.
    pub fn new(settings: NodeSettings, backends: PerFamily<Option<Box<dyn Backend>>>) -> Self {
        let family = |backend: Option<Box<dyn Backend>>| backend.map(FamilySync::new);
        Self {
            store: Store::with_policy(&settings.node_name, settings.services.clone()),
            builder: Builder::new(settings),
            families: PerFamily {
                v4: family(backends.v4),
                v6: family(backends.v6),
            },
            addresses: Vec::new(),
            addresses_changed: true,
            has_unreadable_objects: false,
            node_wait: NodeWait::new(NodeNeed::Nothing),
            is_owner: true,
            received: Received::default(),
            taken: Received::default(),
            warned: Warned::default(),
            unreported: Vec::new(),
        }
    }

    /// Lets the first write wait for our Node.
    #[must_use]
    pub fn waiting_for(self, need: NodeNeed) -> Self {
        Self {
            node_wait: NodeWait::new(need),
            ..self
        }
    }

    /// Lets the first write wait for [`Self::own`], while another process writes.
    #[must_use]
    pub fn waiting_for_ownership(self) -> Self {
        Self {
            is_owner: false,
            ..self
        }
    }

    /// No other process writes any more.
    pub fn own(&mut self) {
        self.is_owner = true;
    }

    /// Takes in an event; nothing is written yet.
    pub fn handle(&mut self, event: impl Borrow<Event>) {
        let event = event.borrow();
        match (event, event.kind()) {
            (Event::Listed(_), _) => {}
            (_, Kind::Service) => self.received.services += 1,
            (_, Kind::EndpointSlice) => self.received.slices += 1,
            _ => {}
        }
        let warnings = self.store.handle(event);
        self.warn(warnings);
    }

    /// What was wrong with objects lately.
    pub fn warned(&self) -> &Warned {
        &self.warned
    }

    /// What was wrong with objects since the last call, for their authors.
    pub fn take_unreported(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.unreported)
    }

    /// Looks whether the first write has to wait for our Node any longer.
    pub fn look_for_node(&mut self, now: Instant) -> Wait {
        self.node_wait.look(&self.store, now)
    }

    /// What came in so far.
    pub fn received(&self) -> Received {
        self.received
    }

    /// What of that waits for a sync.
    pub fn pending(&self) -> Received {
        Received {
            services: self.received.services - self.taken.services,
            slices: self.received.slices - self.taken.slices,
        }
    }

    /// Our Node, as last seen.
    pub fn node(&self) -> Option<&Node> {
        self.store.node()
    }

    /// What is wanted of a family, as of the last sync; none if this machine does not have the family.
    pub fn desired(&self, family: Family) -> Option<&Desired> {
        let is_enabled = self.families[family].is_some();
        is_enabled.then(|| self.builder.desired(family))
    }

    /// The state that packets are traced through, as of the last sync.
    pub fn trace_context(&self, profile: TraceProfile) -> TraceContext<'_> {
        TraceContext {
            builder: &self.builder,
            store: &self.store,
            addresses: &self.addresses,
            profile,
        }
    }

    /// Takes in this machine's addresses.
    pub fn set_addresses(&mut self, mut addresses: Vec<IpAddr>) {
        addresses.sort_unstable();
        addresses.dedup();
        self.addresses_changed |= addresses != self.addresses;
        self.addresses = addresses;
    }

    /// Says whether the source could read all its objects. As long as it could not, a full sync leaves alone what belongs to services
    /// that are not known: an earlier run knew better.
    pub fn set_unreadable_objects(&mut self, has_unreadable_objects: bool) {
        if self.has_unreadable_objects && !has_unreadable_objects {
            Family::ALL
                .into_iter()
                .for_each(|family| self.suspect(family));
        }
        self.has_unreadable_objects = has_unreadable_objects;
    }

    /// The first lists are complete, our Node is known well enough and no other process writes, so the kernel may be written.
    pub fn is_ready(&self) -> bool {
        self.store.initial_lists_done() && self.node_wait.is_over() && self.is_owner
    }

    /// As of the last sync, all that is wanted of a family is in the kernel.
    pub fn is_in_sync(&self, family: Family) -> bool {
        let sync = self.families[family].as_ref();
        sync.is_some_and(|sync| !sync.needs_full)
    }

    /// Somebody may have changed a family's rules, so they are to be compared with what is wanted.
    pub fn suspect(&mut self, family: Family) {
        if let Some(sync) = &mut self.families[family] {
            sync.needs_full = true;
        }
    }

    /// Looks whether anybody touched the kernel's rules, cheaply; whoever did is found out by the next sync.
    pub fn check(&mut self) {
        for family in Family::ALL {
            let Some(sync) = &mut self.families[family] else {
                continue;
            };
            match sync.backend.is_untouched() {
                Ok(true) => {}
                Ok(false) => sync.needs_full = true,
                Err(error) => {
                    tracing::warn!(%family, %error, "cannot tell whether the rules are as they were; comparing all");
                    sync.needs_full = true;
                }
            }
        }
    }

    /// Writes what events have changed. Answers with what was done, family by family; empty if there was nothing to do.
    pub fn sync(&mut self) -> Vec<Outcome> {
        if !self.is_ready() {
            return Vec::new();
        }
        let deltas = self.update();
        Family::ALL
            .into_iter()
            .filter_map(|family| self.sync_family(family, &deltas[family]))
            .collect()
    }

    /// Earlier syncs left something behind that should be removed after so long; none if they did not.
    pub fn leftovers_after(&self) -> Option<Duration> {
        let families = [&self.families.v4, &self.families.v6];
        let families = families.into_iter().flatten();
        families.filter_map(FamilySync::leftovers_after).min()
    }

    /// Removes what can go now.
    pub fn tidy(&mut self) -> Vec<Outcome> {
        Family::ALL
            .into_iter()
            .filter_map(|family| self.families[family].as_mut()?.tidy(family))
            .collect()
    }

    fn update(&mut self) -> PerFamily<Delta> {
        self.taken = self.received;
        let mut touched = self.store.take_touched();
        touched.node |= std::mem::take(&mut self.addresses_changed);
        self.note_triggers(std::mem::take(&mut touched.triggers));
        let update = self.builder.update(&self.store, touched, &self.addresses);
        self.warn(update.warnings);
        update.deltas
    }

    fn warn(&mut self, warnings: Vec<Warning>) {
        for warning in warnings {
            log_warning(&warning);
            if self.unreported.len() < MOST_UNREPORTED {
                self.unreported.push(warning.clone());
            }
            self.warned.add(warning);
        }
    }

    fn note_triggers(&mut self, triggers: Triggers) {
        for (family, time) in triggers.into_values().flatten() {
            if let Some(sync) = &mut self.families[family] {
                sync.note_trigger(time);
            }
        }
    }

    fn sync_family(&mut self, family: Family, delta: &Delta) -> Option<Outcome> {
        let sync = self.families[family].as_mut()?;
        let desired = self.builder.desired(family);
        let mut outcome = sync.write(desired, delta, self.has_unreadable_objects)?;
        if outcome.result.is_ok() {
            outcome.cleanup = sync.owed.take_cleanup(desired, &self.addresses);
        }
        let warnings = sync.backend.take_warnings();
        self.warn(warnings);
        Some(outcome)
    }
}

fn log_warning(warning: &Warning) {
    tracing::warn!(object = %warning.object, field = %warning.field, "{}", warning.problem_in_full());
}

#[cfg(test)]
mod tests {
    use ferrovia_core::wire::Object;

    use super::*;

    #[test]
    fn what_came_in_is_pending_until_a_sync_takes_it() {
        let mut engine = Engine::new(NodeSettings::of_node("node-1"), PerFamily::default());
        let pending = |engine: &Engine| (engine.pending().services, engine.pending().slices);
        for _ in 0..2 {
            engine.handle(Event::Applied(Box::new(
                Object::Service(Default::default()),
            )));
        }
        engine.handle(Event::Applied(Box::new(Object::EndpointSlice(
            Default::default(),
        ))));
        engine.sync();
        assert_eq!(pending(&engine), (2, 1), "nothing is written yet");
        for kind in Kind::ALL {
            engine.handle(Event::Listed(kind));
        }
        engine.tidy();
        assert_eq!(pending(&engine), (2, 1), "leftovers are another matter");
        engine.sync();
        assert_eq!(pending(&engine), (0, 0));
    }
}
