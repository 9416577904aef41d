//! What was wrong with objects, as far as people may still want to know it.

use std::collections::VecDeque;

use ferrovia_core::model::Warning;

/// So many problems are kept.
const KEPT: usize = 200;

/// The latest problems that were logged.
#[derive(Debug, Default)]
pub struct Warned {
    latest: VecDeque<Warning>,
    total: u64,
}

impl Warned {
    /// Keeps a problem, at the cost of the oldest if there are too many.
    pub(super) fn add(&mut self, warning: Warning) {
        if self.latest.len() == KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(warning);
        self.total += 1;
    }

    /// The latest, oldest first.
    pub fn latest(&self) -> impl DoubleEndedIterator<Item = &Warning> {
        self.latest.iter()
    }

    /// How many there were since the start.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut warned = Warned::default();
        for i in 0..KEPT + 3 {
            warned.add(Warning {
                object: i.to_string(),
                field: String::new(),
                problem: String::new(),
                operator_detail: None,
            });
        }
        assert_eq!(warned.total(), KEPT as u64 + 3);
        assert_eq!(warned.latest().count(), KEPT);
        assert_eq!(warned.latest().next().map(|w| &*w.object), Some("3"));
    }
}
