//! Tells when connection tracking's table is full.
//!
//! Nothing gets through the node then but what is in the table already, whatever the rules say: not even health checks, nor a new connection
//! to the API server. So it looks as if the proxy had broken, and the proxy's log is where people look.

use std::io;
use std::thread;
use std::time::Duration;

use ferrovia_host::survey::flows;

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(5);
/// From so many hundredths on it is worth a warning.
const FULL: u64 = 95;
/// Below so many hundredths all is well again; in between it is neither, so as not to tell the same again and again.
const ROOMY: u64 = 85;

/// How full the table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    flows: u64,
    /// 0: as many as there is memory for.
    limit: u64,
    /// Packets dropped for want of room so far.
    dropped: u64,
}

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// There is hardly any room left.
    Full,
    /// It was full, and so many packets were dropped for want of room since.
    RoomAgain(u64),
}

/// What was told last.
#[derive(Debug, Default)]
struct Teller {
    /// Packets that had been dropped when it was found full, while it is.
    full_since: Option<u64>,
}

impl Teller {
    fn look(&mut self, reading: Reading) -> Option<News> {
        if reading.limit == 0 {
            return None;
        }
        let hundredths = reading.flows.saturating_mul(100) / reading.limit;
        match self.full_since {
            None if hundredths >= FULL => {
                self.full_since = Some(reading.dropped);
                Some(News::Full)
            }
            Some(before) if hundredths < ROOMY => {
                self.full_since = None;
                Some(News::RoomAgain(reading.dropped.saturating_sub(before)))
            }
            _ => None,
        }
    }
}

/// Looks now and then, for as long as this process lives.
pub fn watch() {
    let mut teller = Teller::default();
    loop {
        // Where nothing is tracked there is nothing to read; that may come later.
        if let Ok(reading) = read() {
            tell(teller.look(reading), reading);
        }
        thread::sleep(EVERY);
    }
}

fn read() -> io::Result<Reading> {
    let (flows, limit) = flows::fill()?;
    // Kernels without these numbers still say how full it is.
    let dropped = flows::totals().map_or(0, |totals| totals.dropped);
    Ok(Reading {
        flows,
        limit,
        dropped,
    })
}

fn tell(news: Option<News>, reading: Reading) {
    let Reading { flows, limit, .. } = reading;
    match news {
        Some(News::Full) => tracing::warn!(
            flows,
            limit,
            "connection tracking's table is full, or will be soon: new connections are dropped then; raise conntrack.maxPerCore or conntrack.min, \
             or find who opens so many (conntrack -L)"
        ),
        Some(News::RoomAgain(dropped)) => {
            tracing::info!(
                flows,
                limit,
                dropped,
                "connection tracking's table has room again"
            );
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(flows: u64, dropped: u64) -> Reading {
        Reading {
            flows,
            limit: 1000,
            dropped,
        }
    }

    #[test]
    fn a_full_table_is_told_once_and_its_end_too() {
        let mut teller = Teller::default();
        let told: Vec<_> = [
            (0, 7),
            (949, 7),
            (950, 7),
            (1000, 50),
            (900, 50),
            (990, 60),
            (849, 60),
            (850, 60),
            (1000, 60),
        ]
        .into_iter()
        .map(|(flows, dropped)| teller.look(reading(flows, dropped)))
        .collect();
        let (full, none) = (Some(News::Full), None);
        let room = Some(News::RoomAgain(53));
        assert_eq!(told, [none, none, full, none, none, none, room, none, full]);
    }

    #[test]
    fn a_table_without_a_limit_is_never_full() {
        let mut teller = Teller::default();
        let endless = Reading {
            limit: 0,
            ..reading(u64::MAX, 0)
        };
        assert_eq!(teller.look(endless), None);
        assert_eq!(teller.look(reading(u64::MAX, 0)), Some(News::Full));
    }
}
