//! One connection: a client, an endpoint once one answers, and two directions.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use super::direction::{Direction, Means, Moved};
use crate::userspace::ConnectFailure;
use crate::userspace::shared::{Accepted, ServiceState, Target};
use crate::userspace::socket;
use crate::userspace::sys::Ready;

/// What is to become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Until something happens there is nothing to do.
    Wait,
    /// It had its turn and has more to do.
    More,
    /// Both directions have ended well.
    Done,
    /// It is over: both sides are to know that it did not end well.
    Reset,
}

#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    upstream: Option<TcpStream>,
    service: Arc<ServiceState>,
    target: Option<Arc<Target>>,
    /// There until an endpoint has answered.
    dialling: Option<Box<Dialling>>,
    inwards: Direction,
    outwards: Direction,
}

/// How far dialling has got.
#[derive(Debug)]
struct Dialling {
    client: SocketAddr,
    /// Endpoints that failed.
    tried: Vec<SocketAddr>,
    attempts: u8,
    started: Instant,
}

impl Connection {
    pub(super) fn new(accepted: Accepted) -> Self {
        let dialling = Dialling {
            client: accepted.client,
            tried: Vec::new(),
            attempts: 0,
            started: Instant::now(),
        };
        Self {
            client: accepted.stream,
            upstream: None,
            service: accepted.service,
            target: None,
            dialling: Some(Box::new(dialling)),
            inwards: Direction::default(),
            outwards: Direction::default(),
        }
    }

    pub(super) fn client(&self) -> &TcpStream {
        &self.client
    }

    pub(super) fn is_dialling(&self) -> bool {
        self.dialling.is_some()
    }

    /// How many attempts have failed; nothing once one has succeeded.
    pub(super) fn attempts(&self) -> Option<u8> {
        self.dialling.as_ref().map(|dialling| dialling.attempts)
    }

    /// Chooses an endpoint for the next attempt; `false` if there is none.
    pub(super) fn choose(&mut self, now: Instant) -> bool {
        let Some(dialling) = &mut self.dialling else {
            return false;
        };
        self.target = self
            .service
            .pick(now, dialling.client.ip(), &dialling.tried);
        if self.target.is_some() && dialling.attempts > 0 {
            self.service.counters.retried();
        }
        self.target.is_some()
    }

    /// Starts to connect to the endpoint that was chosen.
    pub(super) fn connect(&mut self, now: Instant) -> io::Result<TcpStream> {
        if let Some(dialling) = &mut self.dialling {
            dialling.started = now;
        }
        match &self.target {
            Some(target) => socket::connect_tcp(target.address, target.is_local()),
            None => Err(io::Error::from_raw_os_error(libc::EDESTADDRREQ)),
        }
    }

    pub(super) fn set_upstream(&mut self, stream: TcpStream) {
        self.upstream = Some(stream);
    }

    /// Why the attempt under way failed.
    pub(super) fn dial_error(&self) -> ConnectFailure {
        let error = self.upstream.as_ref().map(TcpStream::take_error);
        match error {
            Some(Ok(Some(error)) | Err(error)) => ConnectFailure::of(&error),
            _ => ConnectFailure::Other,
        }
    }

    /// Notes that the attempt under way failed, and gives it up.
    pub(super) fn attempt_failed(&mut self, failure: ConnectFailure) {
        self.upstream = None;
        self.fail(failure);
        if let Some(dialling) = &mut self.dialling {
            dialling.attempts += 1;
            dialling
                .tried
                .extend(self.target.take().map(|target| target.address));
        }
    }

    /// The endpoint has answered.
    pub(super) fn opened(&mut self, now: Instant) {
        let (Some(dialling), Some(target)) = (self.dialling.take(), &self.target) else {
            return;
        };
        // The time of the events is good enough, save for an answer that came with the very events that had us dial.
        let took = now.max(dialling.started) - dialling.started;
        self.service.counters.dialled(took);
        target.counters.dialled(took);
        target.counters.opened();
        self.inwards = Direction::open();
        self.outwards = Direction::open();
    }

    pub(super) fn fail(&self, failure: ConnectFailure) {
        self.service.counters.failed(failure);
        if let Some(target) = &self.target {
            target.counters.failed(failure);
        }
    }

    pub(super) fn note_client(&mut self, ready: Ready) {
        self.inwards.note_sender(ready);
        self.outwards.note_receiver(ready);
    }

    pub(super) fn note_upstream(&mut self, ready: Ready) {
        self.outwards.note_sender(ready);
        self.inwards.note_receiver(ready);
    }

    /// Its endpoint went, and its time is over.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.target
            .as_ref()
            .is_some_and(|target| target.is_over(now))
    }

    /// Moves what can be moved, both ways.
    pub(super) fn carry(&mut self, means: &mut Means) -> NextStep {
        let Some(upstream) = &self.upstream else {
            return NextStep::Wait;
        };
        let inwards = self.inwards.carry(&self.client, upstream, means);
        // After that: what an endpoint said before it hung up still reaches the client, although it reads no more.
        let outwards = self.outwards.carry(upstream, &self.client, means);
        self.count(&inwards, &outwards);
        if let Some(error) = inwards.failed.or(outwards.failed) {
            self.fail(ConnectFailure::of(&error));
            return NextStep::Reset;
        }
        if self.inwards.is_done() && self.outwards.is_done() {
            return NextStep::Done;
        }
        if inwards.more || outwards.more {
            return NextStep::More;
        }
        NextStep::Wait
    }

    /// Moves what can be moved for the first time.
    pub(super) fn carry_first(&mut self, means: &mut Means) -> NextStep {
        let verdict = self.carry(means);
        if let Some(upstream) = &self.upstream
            && self.inwards.is_fresh()
        {
            socket::complete_handshake(upstream);
        }
        verdict
    }

    pub(super) fn close(mut self, verdict: NextStep, means: &mut Means) {
        self.inwards.release(means);
        self.outwards.release(means);
        if verdict == NextStep::Reset {
            socket::reset_on_close(&self.client);
            self.upstream.iter().for_each(socket::reset_on_close);
        }
        self.service.counters.closed();
        if let (Some(target), None) = (&self.target, &self.dialling) {
            target.counters.closed();
        }
    }

    fn count(&self, inwards: &Moved, outwards: &Moved) {
        self.service.counters.bytes(inwards.bytes, outwards.bytes);
        if let Some(target) = &self.target {
            target.counters.bytes(inwards.bytes, outwards.bytes);
        }
    }
}
