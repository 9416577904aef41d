//! Which endpoints each Service has, and had when: who may answer a call, and whether somebody must.
//!
//! A change takes a while to have effect, so what was so a moment ago may still be. While the daemon is away or hears nothing, what was so
//! before may be for all of that time; and while somebody has taken our rules away, or the kernel has no room for new connections, nothing
//! need be reachable.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ferrovia_lab::Pod;
use ferrovia_lab::apiserver::{ApiServer, Error, Kind};

use crate::objects::{NAMESPACE, Service};

/// A removed endpoint gets no new connection later than this after the API server told. Mostly for the sake of loaded machines: it takes
/// a few milliseconds.
pub(crate) const BOUND: Duration = Duration::from_secs(6);

/// A set of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pods(u8);

impl Pods {
    pub(crate) fn one(pod: Pod) -> Self {
        Self(1 << pod as u8)
    }

    /// Some of all pods, at least one; which, the number decides.
    pub(crate) fn some(number: usize) -> Self {
        let all = (1 << Pod::ALL.len()) - 1;
        Self((number % all) as u8 + 1)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Pod> {
        Pod::ALL.into_iter().filter(move |pod| self.has(*pod))
    }

    fn has(self, pod: Pod) -> bool {
        self.0 & Self::one(pod).0 != 0
    }

    fn has_name(self, name: &str) -> bool {
        self.iter().any(|pod| pod.name() == name)
    }

    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What has to be reckoned with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The daemon hears of no changes.
    Behind,
    /// There are no rules.
    Bare,
    /// There is no room for new connections. Those that there are go on.
    Full,
}

#[derive(Debug)]
struct Period {
    trouble: Trouble,
    from: Instant,
    /// Nothing while it lasts.
    to: Option<Instant>,
}

/// What is to be said of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// As it should be.
    Right,
    /// No endpoint answered, as expected.
    Excused,
    /// No endpoint answered, but one should have.
    Lost,
    /// Somebody answered who was gone for too long.
    Stray,
}

/// All Services that clients call.
#[derive(Debug)]
pub(crate) struct Model {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// For each Service, from when on it had which endpoints.
    history: Vec<Vec<(Instant, Pods)>>,
    periods: Vec<Period>,
}

impl Model {
    /// So many Services, with one pod each.
    pub(crate) fn new(api: &ApiServer, services: u16) -> Result<Self, Error> {
        let mut inner = Inner::default();
        for service in (0..services).map(Service) {
            let pods = Pods::one(Pod::ALL[usize::from(service.0) % Pod::ALL.len()]);
            api.apply(service.object())?;
            api.apply_many(service.slices(pods))?;
            inner.history.push(vec![(Instant::now(), pods)]);
        }
        Ok(Self {
            inner: Mutex::new(inner),
        })
    }

    /// Gives a Service other endpoints.
    pub(crate) fn change(
        &self,
        api: &ApiServer,
        service: Service,
        pods: Pods,
    ) -> Result<(), Error> {
        if let Some(history) = self.inner().history.get_mut(usize::from(service.0)) {
            history.push((Instant::now(), pods));
        }
        api.apply_many(service.slices(pods))
    }

    /// Gives all Services the endpoints that they had first.
    pub(crate) fn as_in_the_beginning(&self, api: &ApiServer) -> Result<(), Error> {
        let first: Vec<Pods> = {
            let inner = self.inner();
            let first = inner.history.iter().filter_map(|history| history.first());
            first.map(|(_, pods)| *pods).collect()
        };
        for (number, pods) in first.into_iter().enumerate() {
            self.change(api, Service(number as u16), pods)?;
        }
        Ok(())
    }

    /// The endpoints that a Service should have now.
    pub(crate) fn latest(&self, service: Service) -> Pods {
        let inner = self.inner();
        let history = inner.history.get(usize::from(service.0));
        let latest = history.and_then(|history| history.last());
        latest.map_or(Pods::default(), |(_, pods)| *pods)
    }

    /// Something begins that has to be reckoned with.
    pub(crate) fn begin(&self, trouble: Trouble) {
        self.inner().periods.push(Period {
            trouble,
            from: Instant::now(),
            to: None,
        });
    }

    /// It is over.
    pub(crate) fn end(&self) {
        let now = Instant::now();
        for period in &mut self.inner().periods {
            period.to.get_or_insert(now);
        }
    }

    /// Judges a call that was made and answered, or not, at these times.
    pub(crate) fn judge(
        &self,
        service: Service,
        asked: Instant,
        ended: Instant,
        answer: Option<&str>,
    ) -> Judgement {
        let inner = self.inner();
        let (mut from, mut is_excused) = (earlier(asked, BOUND), false);
        for period in &inner.periods {
            let is_over = period.to.is_some_and(|to| to + BOUND < asked);
            if period.from <= ended && !is_over {
                from = from.min(earlier(period.from, BOUND));
                is_excused |= period.trouble != Trouble::Behind;
            }
        }
        let empty = Vec::new();
        let history = inner.history.get(usize::from(service.0)).unwrap_or(&empty);
        let old = history.iter().rev().find(|(at, _)| *at <= from);
        let young = history.iter().filter(|(at, _)| *at > from && *at <= ended);
        let all: Vec<Pods> = old
            .into_iter()
            .chain(young)
            .map(|(_, pods)| *pods)
            .collect();
        let may = all.iter().copied().fold(Pods::default(), Pods::or);
        match answer {
            Some(name) if may.has_name(name) => Judgement::Right,
            Some(_) => Judgement::Stray,
            None if is_excused || all.contains(&Pods::default()) => Judgement::Excused,
            None => Judgement::Lost,
        }
    }

    /// What a Service had of late, and what had to be reckoned with, by seconds before a moment.
    pub(crate) fn explain(&self, service: Service, moment: Instant) -> String {
        const LATE: Duration = Duration::from_secs(60);
        let inner = self.inner();
        let before = |at: Instant| match moment.checked_duration_since(at) {
            Some(time) => format!("-{:.1}", time.as_secs_f64()),
            None => format!("+{:.1}", (at - moment).as_secs_f64()),
        };
        let history = inner
            .history
            .get(usize::from(service.0))
            .into_iter()
            .flatten();
        let history = history
            .filter(|(at, _)| *at + LATE > moment)
            .map(|(at, pods)| {
                let names: Vec<_> = pods.iter().map(Pod::name).collect();
                format!("{} s {}", before(*at), names.join("+"))
            });
        let periods = inner.periods.iter();
        let periods = periods
            .filter(|period| period.to.is_none_or(|to| to + LATE > moment))
            .map(|period| {
                let to = period.to.map_or("now".to_owned(), before);
                format!("{:?} from {} to {to}", period.trouble, before(period.from))
            });
        let (history, periods): (Vec<_>, Vec<_>) = (history.collect(), periods.collect());
        format!("endpoints {}; {}", history.join(", "), periods.join(", "))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Deletes a Service with its slices.
pub(crate) fn delete(api: &ApiServer, service: Service) {
    api.delete(Kind::Service, NAMESPACE, &service.name());
    for slice in service.slice_names() {
        api.delete(Kind::EndpointSlice, NAMESPACE, &slice);
    }
}

fn earlier(moment: Instant, by: Duration) -> Instant {
    moment.checked_sub(by).unwrap_or(moment)
}
