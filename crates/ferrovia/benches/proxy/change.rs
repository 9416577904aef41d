//! What one change costs.

use std::time::{Duration, Instant};

use anyhow::ensure;
use ferrovia_lab::{Pod, World};

use crate::cluster::{FIRST_POD, Size};
use crate::connect::{CLIENT, through, who_answers};
use crate::figures::Samples;
use crate::orders::{Cost, Order};
use crate::subject::Subject;

/// The pod that watched services are moved to, and back from.
const OTHER_POD: Pod = Pod::C;

/// What many changes of one kind cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// From the event to the kernel's word that it is done.
    pub(crate) sync: Samples,
    /// Of that, encoding and the kernel's work.
    pub(crate) apply: Samples,
    /// CPU time of the proxy for one change, on average.
    pub(crate) cpu: Duration,
}

/// Moves every watched service to another pod and back, while a client calls it in a tight loop. Answers also with the time until
/// the new pod answered, which begins before the order is sent.
pub(crate) fn moves(
    world: &World,
    subject: &mut Subject,
    size: Size,
) -> anyhow::Result<(Changes, Samples)> {
    let _inside = world.enter(CLIENT)?;
    let mut answered = Samples::default();
    let there = size
        .watched()
        .map(|service| (service, FIRST_POD, OTHER_POD));
    let back = size
        .watched()
        .map(|service| (service, OTHER_POD, FIRST_POD));
    let changes = many(
        subject,
        there.chain(back),
        |subject, (service, from, to)| {
            let (took, cost) = move_one(subject, service, from, to)?;
            answered.add(took);
            Ok(cost)
        },
    )?;
    Ok((changes, answered))
}

fn move_one(
    subject: &mut Subject,
    service: usize,
    from: Pod,
    to: Pod,
) -> anyhow::Result<(Duration, Cost)> {
    let address = through(service);
    let before = who_answers(address)?;
    ensure!(before == from.name(), "{address} was answered by {before}");
    let start = Instant::now();
    subject.send(Order::MoveTo {
        service,
        pod: to.v4(),
    })?;
    while who_answers(address)? != to.name() {
        ensure!(
            start.elapsed() < Duration::from_secs(10),
            "{address} is still answered by {}",
            from.name()
        );
    }
    Ok((start.elapsed(), subject.receive()?))
}

/// Gives services one endpoint more, and takes it away again: another number of slots, so another chain picks among them.
pub(crate) fn resizes(subject: &mut Subject, size: Size) -> anyhow::Result<Changes> {
    let orders = size.unwatched().flat_map(|service| {
        [size.endpoints + 1, size.endpoints].map(|endpoints| Order::Resize {
            size,
            service,
            endpoints,
        })
    });
    many(subject, orders, Subject::obey)
}

/// Adds services.
pub(crate) fn additions(subject: &mut Subject, size: Size) -> anyhow::Result<Changes> {
    let new = || size.services..size.services + 100;
    let added = many(
        subject,
        new().map(|service| Order::Add { size, service }),
        Subject::obey,
    )?;
    for service in new() {
        subject.obey(Order::Remove { size, service })?;
    }
    Ok(added)
}

/// Makes changes one after the other.
fn many<T>(
    subject: &mut Subject,
    changes: impl Iterator<Item = T>,
    mut make: impl FnMut(&mut Subject, T) -> anyhow::Result<Cost>,
) -> anyhow::Result<Changes> {
    let mut all = Changes::default();
    let (start, mut count) = (subject.cpu()?, 0);
    for change in changes {
        let cost = make(subject, change)?;
        all.sync.add(cost.total());
        all.apply.add(cost.apply);
        count += 1;
    }
    all.cpu = subject.cpu()?.saturating_sub(start) / count.max(1);
    Ok(all)
}
