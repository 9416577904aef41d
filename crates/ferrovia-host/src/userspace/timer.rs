//! Many deadlines, kept cheaply: setting one is an append, and those that are no longer wanted are not looked for but ignored when due.
//!
//! Knows no clock; the time is passed in.

use std::time::{Duration, Instant};

/// Deadlines are kept to within this.
const TICK: Duration = Duration::from_millis(10);
/// Deadlines that are further away than the wheel is round stay in their slot for another round.
const SLOTS: usize = 512;

/// What is to be said when.
#[derive(Debug)]
pub(super) struct Wheel<T> {
    start: Instant,
    slots: Vec<Vec<(u64, T)>>,
    /// All ticks before this one are over.
    next: u64,
    len: usize,
}

impl<T> Wheel<T> {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            start: now,
            slots: std::iter::repeat_with(Vec::new).take(SLOTS).collect(),
            next: 0,
            len: 0,
        }
    }

    /// Says this at that time, or up to a tick later.
    pub(super) fn set(&mut self, at: Instant, what: T) {
        let tick = self.tick(at).saturating_add(1).max(self.next);
        self.slots[slot(tick)].push((tick, what));
        self.len += 1;
    }

    /// What is due by now, appended to the list.
    pub(super) fn take_due(&mut self, now: Instant, due: &mut Vec<T>) {
        let now = self.tick(now);
        // After a long sleep one round reaches every slot.
        let last = now.min(self.next.saturating_add(SLOTS as u64 - 1));
        let before = due.len();
        if self.len > 0 {
            for tick in self.next..=last {
                let slot = &mut self.slots[slot(tick)];
                due.extend(
                    slot.extract_if(.., |(at, _)| *at <= now)
                        .map(|(_, what)| what),
                );
            }
        }
        self.next = self.next.max(now.saturating_add(1));
        self.len -= due.len() - before;
    }

    /// How long it is safe to sleep; nothing if nothing is set.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        if self.len == 0 {
            return None;
        }
        let ticks = self.next..self.next + SLOTS as u64;
        let tick = ticks
            .clone()
            .find(|tick| !self.slots[slot(*tick)].is_empty());
        let micros = TICK.as_micros() as u64 * tick.unwrap_or(ticks.end);
        let at = self.start + Duration::from_micros(micros);
        Some(at.saturating_duration_since(now))
    }

    fn tick(&self, at: Instant) -> u64 {
        (at.saturating_duration_since(self.start).as_micros() / TICK.as_micros()) as u64
    }
}

fn slot(tick: u64) -> usize {
    (tick % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(wheel: &mut Wheel<u32>, now: Instant) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.take_due(now, &mut due);
        due.sort_unstable();
        due
    }

    #[test]
    fn each_is_said_once_and_never_early() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        for number in 0..500 {
            let millis = u64::from(number) * 37;
            wheel.set(start + Duration::from_millis(millis), number);
        }
        let mut said = Vec::new();
        for step in 0..4000 {
            let now = start + Duration::from_millis(step * 5);
            for number in due(&mut wheel, now) {
                let at = start + Duration::from_millis(u64::from(number) * 37);
                assert!(now >= at, "{number} came early");
                assert!(now - at <= TICK * 2, "{number} came {:?} late", now - at);
                said.push(number);
            }
        }
        said.sort_unstable();
        assert_eq!(said, (0..500).collect::<Vec<_>>());
        assert_eq!(wheel.wait(start), None);
    }

    #[test]
    fn a_long_sleep_loses_nothing() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        wheel.set(start + Duration::from_millis(20), 1);
        wheel.set(start + Duration::from_secs(60), 2);
        wheel.set(start + Duration::from_secs(7200), 3);
        assert_eq!(due(&mut wheel, start + Duration::from_secs(3600)), [1, 2]);
        assert_eq!(due(&mut wheel, start + Duration::from_secs(7201)), [3]);
    }

    #[test]
    fn sleeping_until_the_next_deadline_makes_progress() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let at = start + Duration::from_millis(12345);
        wheel.set(at, 1);
        let mut now = start;
        for _ in 0..10 {
            let Some(wait) = wheel.wait(now) else { break };
            assert!(wait > Duration::ZERO);
            now += wait;
            if !due(&mut wheel, now).is_empty() {
                assert!(now >= at);
                return;
            }
        }
        panic!("it was not said within ten waits");
    }
}
