//! What is counted while the loop has no time.

use std::ops::ControlFlow;
use std::thread;

use ferrovia_core::desired::{Delta, NodeSettings};
use ferrovia_core::plan::ObservedPolicy;
use ferrovia_core::store::Event;
use ferrovia_core::wire::{Kind, Object};
use ferrovia_lab::waiting::wait;
use serde_json::json;

use super::*;
use crate::sync::backend::{Backend, Written};
use crate::sync::{self, Observer, Outcome, Pace, Stop};

/// Seven connections to the cluster IP of `shop/web`.
struct Seven;

impl Counts for Seven {
    fn read(&mut self, family: Family) -> Result<HashMap<Counted, u64>, SyncError> {
        let counted = Counted {
            to: Destination {
                address: Some([10, 96, 0, 10].into()),
                protocol: 6,
                port: 80,
            },
            endpoint: Some(([10, 244, 1, 10], 8080).into()),
        };
        let is_v4 = family == Family::V4;
        Ok(is_v4.then_some((counted, 7)).into_iter().collect())
    }
}

/// A kernel that takes everything and has nothing.
struct Anything;

const DONE: Written = Written {
    changed: true,
    observe: Duration::ZERO,
    plan: Duration::ZERO,
    apply: Duration::ZERO,
};

impl Backend for Anything {
    fn full(&mut self, _: &Desired, _: ObservedPolicy) -> Result<Written, SyncError> {
        Ok(DONE)
    }

    fn partial(&mut self, _: &Desired, _: &Delta) -> Result<Written, SyncError> {
        Ok(DONE)
    }

    fn leftovers_after(&self) -> Option<Duration> {
        None
    }

    fn tidy(&mut self) -> Result<Written, SyncError> {
        Ok(DONE)
    }

    fn is_untouched(&mut self) -> Result<bool, SyncError> {
        Ok(true)
    }
}

/// Says when something was written.
struct Tell(mpsc::Sender<()>);

impl Observer for Tell {
    fn synced(&mut self, _: &Engine, _: &[Outcome]) -> ControlFlow<()> {
        let _ = self.0.send(());
        ControlFlow::Continue(())
    }
}

fn web() -> Input {
    let service = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]},
    });
    let service = Object::Service(serde_json::from_value(service).unwrap());
    let listed = Kind::ALL.map(Event::Listed);
    Input::Events {
        events: [Event::Applied(Box::new(service))]
            .into_iter()
            .chain(listed)
            .collect(),
        has_unreadable_objects: false,
    }
}

/// The counts of services.
fn read(totals: &mut Totals) -> Result<Vec<u64>, SyncError> {
    let mut out = Connections::new(10);
    totals.read(&mut out)?;
    Ok(out.services().map(|(_, count)| count).collect())
}

#[test]
fn a_busy_loop_is_not_waited_for_without_end_and_nothing_counted_meanwhile_is_lost() {
    let (inputs, received) = sync::queue();
    inputs.send(web()).unwrap();
    while inputs.try_send(Input::Check).is_ok() {}
    let mut totals = Totals::new(Box::new(Seven), inputs.clone());
    let error = read(&mut totals).unwrap_err();
    assert_eq!(error.to_string(), BUSY);

    let (synced, has_synced) = mpsc::channel();
    let looping = thread::spawn(move || {
        let backends = PerFamily {
            v4: Some(Box::new(Anything) as Box<dyn Backend>),
            v6: None,
        };
        let engine = Engine::new(NodeSettings::of_node("node-1"), backends);
        sync::run(engine, &received, Pace::default(), &mut Tell(synced))
    });
    has_synced.recv().unwrap();
    // On a busy machine the loop may be late again; that loses nothing either.
    let mut read_at_last = || wait(|| read(&mut totals).map_err(|error| error.to_string()));
    assert_eq!(read_at_last(), [7]);
    assert_eq!(read_at_last(), [7], "counted once");
    inputs.send(Input::Stop).unwrap();
    assert_eq!(looping.join().unwrap(), Stop::Asked);
}

#[test]
fn with_too_many_sums_only_those_go_that_have_not_grown_for_longest() {
    let mut sums: BTreeMap<usize, Sum> = BTreeMap::new();
    let sum = |grew| Sum { count: 1, grew };
    sums.extend((0..REMEMBERED).map(|key| (key, sum(2))));
    sums.insert(7, sum(1));
    forget_if_many(&mut sums);
    assert_eq!(sums.len(), REMEMBERED, "there is still room");
    sums.insert(REMEMBERED, sum(3));
    forget_if_many(&mut sums);
    assert_eq!(sums.len(), KEPT);
    assert!(!sums.contains_key(&7), "the oldest goes first");
    assert!(sums.contains_key(&REMEMBERED), "the latest stays");
}
