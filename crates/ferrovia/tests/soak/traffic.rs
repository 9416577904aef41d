//! Clients in several places, and connections that stay.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferrovia_lab::client::{Call, Caller};
use ferrovia_lab::random::Random;
use ferrovia_lab::{ClientHost, Outcome, Pod, Protocol};

use crate::churn::CALLED;
use crate::model::{Judgement, Model};
use crate::objects::Service;
use crate::stage::Stage;

/// Time for a first packet that was lost to be sent again, twice.
const PATIENCE: Duration = Duration::from_secs(6);
/// Between two calls of a client. The lab's source ports come round after more than two minutes then, when the kernel has forgotten
/// earlier connections from them.
const PAUSE: Duration = Duration::from_millis(80);
/// How many failed calls are printed.
const TOLD: usize = 5;

/// What came of calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) tried: u32,
    pub(crate) excused: u32,
    pub(crate) lost: u32,
    pub(crate) strays: u32,
    /// Of the last two.
    pub(crate) words: Vec<String>,
}

/// Counts the calls of all clients.
#[derive(Debug, Default)]
pub(crate) struct Counter(Mutex<Tally>);

impl Counter {
    /// What came of calls since this was last asked.
    pub(crate) fn take(&self) -> Tally {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, judgement: Judgement, words: impl FnOnce() -> String) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.tried += 1;
        match judgement {
            Judgement::Right => return,
            Judgement::Excused => return tally.excused += 1,
            Judgement::Lost => tally.lost += 1,
            Judgement::Stray => tally.strays += 1,
        }
        if tally.words.len() < TOLD {
            let words = words();
            tally.words.push(words);
        }
    }
}

/// A place to call from, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    place: ClientHost,
    to: To,
}

/// What a client calls.
#[derive(Clone, Copy, Debug)]
enum To {
    /// Cluster IPs of both families.
    ClusterIp,
    /// Node ports.
    NodePort,
    /// Cluster IPs, over UDP.
    Udp,
}

impl Client {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 8] = [
        Self::new(ClientHost::Pod(Pod::A), To::ClusterIp),
        Self::new(ClientHost::Pod(Pod::B), To::Udp),
        Self::new(ClientHost::Pod(Pod::C), To::ClusterIp),
        Self::new(ClientHost::Pod(Pod::D), To::NodePort),
        Self::new(ClientHost::Outside, To::NodePort),
        Self::new(ClientHost::Outside, To::NodePort),
        Self::new(ClientHost::Node, To::Udp),
        Self::new(ClientHost::Node, To::ClusterIp),
    ];

    const fn new(place: ClientHost, to: To) -> Self {
        Self { place, to }
    }

    fn target(self, service: Service, number: usize) -> (Protocol, SocketAddr) {
        match self.to {
            To::ClusterIp => (Protocol::Tcp, service.tcp(number % 2 == 1)),
            To::NodePort => (Protocol::Tcp, service.node_port()),
            To::Udp => (Protocol::Udp, service.udp()),
        }
    }

    /// Calls random Services until it is stopped.
    pub(crate) fn run(
        self,
        stage: &Stage,
        model: &Model,
        mut random: Random,
        counter: &Counter,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let place = self.place;
        let caller = Caller::enter(&stage.world, place.role())?;
        while !stop.load(Ordering::Relaxed) {
            let service = Service(random.below(usize::from(CALLED)) as u16);
            let (protocol, to) = self.target(service, random.below(2));
            let asked = Instant::now();
            let outcome = caller.connect(protocol, place.source(to.ip()), to, PATIENCE);
            let ended = Instant::now();
            let answer = match &outcome {
                Outcome::Answer(answer) => Some(answer.pod.as_str()),
                _ => None,
            };
            let judgement = model.judge(service, asked, ended, answer);
            counter.add(judgement, || {
                let took = (ended - asked).as_millis();
                let why = model.explain(service, asked);
                format!("{judgement:?}: {place} > {to} => {outcome} after {took} ms; {why}")
            });
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// A connection that stays open.
pub(crate) struct Held {
    name: String,
    call: Call,
}

impl Held {
    /// Opens one from every place where TCP is spoken.
    pub(crate) fn open(stage: &Stage, service: Service) -> anyhow::Result<Vec<Self>> {
        let mut held = Vec::new();
        for (place, to) in [
            (ClientHost::Pod(Pod::C), service.tcp(false)),
            (ClientHost::Pod(Pod::D), service.tcp(true)),
            (ClientHost::Outside, service.node_port()),
            (ClientHost::Node, service.tcp(false)),
        ] {
            let name = format!("{place} > {to}");
            let caller = Caller::enter(&stage.world, place.role())?;
            let started = caller.start(Protocol::Tcp, place.source(to.ip()), to);
            let mut call = started.with_context(|| name.clone())?;
            match call.finish(Instant::now() + PATIENCE) {
                Outcome::Answer(_) => held.push(Self { name, call }),
                other => bail!("{name} => {other}"),
            }
        }
        Ok(held)
    }

    /// Says what is wrong with it, if it does not carry any more.
    pub(crate) fn check(&mut self) -> Option<String> {
        let error = self.call.repeat(PATIENCE).err()?;
        Some(format!("the open connection {} broke: {error}", self.name))
    }
}

/// The pod that answers now, if any.
pub(crate) fn who_answers(stage: &Stage, service: Service) -> anyhow::Result<Option<String>> {
    who_answers_at(stage, ClientHost::Pod(Pod::D), service.tcp(false))
}

/// The same for an address, called from some place.
pub(crate) fn who_answers_at(
    stage: &Stage,
    place: ClientHost,
    to: SocketAddr,
) -> anyhow::Result<Option<String>> {
    let caller = Caller::enter(&stage.world, place.role())?;
    // Short: this asks again and again, and an answer that is to come comes at once.
    let outcome = caller.connect(
        Protocol::Tcp,
        place.source(to.ip()),
        to,
        Duration::from_millis(300),
    );
    Ok(match outcome {
        Outcome::Answer(answer) => Some(answer.pod),
        _ => None,
    })
}
