//! Dialling: an endpoint is chosen and connected to, without waiting; one that fails is followed by another.

use std::net::TcpStream;
use std::time::Duration;

use super::Tcp;
use super::connection::NextStep;
use crate::balance::PATIENCE;
use crate::userspace::ConnectFailure;
use crate::userspace::slab::SlabKey;
use crate::userspace::socket;
use crate::userspace::sys::{EpollInterest, Ready};
use crate::userspace::worker::{Due, Token, WorkerContext};

impl Tcp {
    /// Makes the next attempt, and those after it that fail at once.
    pub(super) fn dial(&mut self, context: &mut WorkerContext, key: SlabKey) {
        while let Some(patience) = self.attempt(context, key) {
            let Some(connection) = self.connections.get_mut(key) else {
                return;
            };
            match connection.connect(context.now) {
                Ok(stream) => return self.await_answer(context, key, stream, patience),
                Err(error) => connection.attempt_failed(ConnectFailure::of(&error)),
            }
        }
    }

    /// The attempt that was under way has failed or succeeded.
    pub(super) fn on_dialled(&mut self, context: &mut WorkerContext, key: SlabKey, ready: Ready) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if ready.failed() {
            let failure = connection.dial_error();
            connection.attempt_failed(failure);
            return self.dial(context, key);
        }
        if !ready.writable() {
            return;
        }
        let token = Token::Client(key).pack();
        let watched = context
            .epoll
            .add(connection.client(), token, EpollInterest::Edges);
        if watched.is_err() {
            connection.fail(ConnectFailure::Limit);
            return self.end(context, key, NextStep::Reset);
        }
        connection.opened(context.now);
        connection.note_upstream(ready);
        let verdict = connection.carry_first(&mut self.means);
        self.conclude(context, key, verdict);
    }

    /// An attempt has had its time. If it is still the one under way, the next one follows.
    pub(in crate::userspace) fn on_dial_timeout(
        &mut self,
        context: &mut WorkerContext,
        key: SlabKey,
        attempt: u8,
    ) {
        if let Some(connection) = self.connections.get_mut(key)
            && connection.attempts() == Some(attempt)
        {
            connection.attempt_failed(ConnectFailure::TimedOut);
            self.dial(context, key);
        }
    }

    /// How long the next attempt may take. Nothing, and the connection is ended, if there is none left to make.
    ///
    /// The client gets a reset, so that it can distinguish this from an endpoint that sent nothing.
    fn attempt(&mut self, context: &mut WorkerContext, key: SlabKey) -> Option<Duration> {
        let connection = self.connections.get_mut(key)?;
        let attempt = connection.attempts()?;
        let patience = PATIENCE.get(usize::from(attempt)).copied();
        if patience.is_some() && connection.choose(context.now) {
            return patience;
        }
        if patience.is_some() {
            connection.fail(ConnectFailure::NoEndpoints);
        }
        self.end(context, key, NextStep::Reset);
        None
    }

    fn await_answer(
        &mut self,
        context: &mut WorkerContext,
        key: SlabKey,
        stream: TcpStream,
        patience: Duration,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let token = Token::Upstream(key).pack();
        if context
            .epoll
            .add(&stream, token, EpollInterest::Edges)
            .is_err()
        {
            socket::reset_on_close(&stream);
            connection.fail(ConnectFailure::Limit);
            return self.end(context, key, NextStep::Reset);
        }
        connection.set_upstream(stream);
        if let Some(attempt) = connection.attempts() {
            let due = Due::Dial(key, attempt);
            context.timers.set(context.now + patience, due);
        }
    }
}
