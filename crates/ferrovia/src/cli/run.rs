//! `ferrovia run`

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;

use super::flags::ShapeFlags;
use crate::app;
use crate::config::Config;
use crate::sync::Pace;

/// Flags of `ferrovia run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    shape: ShapeFlags,

    /// Write the rules once, then end; exit code 1 if they cannot be written
    #[arg(long)]
    once: bool,

    /// How often to check that nobody has changed our rules, and the longest pause before a failed write is tried again
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    sync_period: Duration,

    /// Least time between two writes; a change is written at once if this is 0
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    min_sync_period: Duration,

    /// Do not count connections: `ferrovia counters` shows services and endpoints without figures
    #[arg(long)]
    no_counters: bool,
}

/// Longer than this makes no sense, and much longer no instant.
const LONGEST_PERIOD: Duration = Duration::from_secs(24 * 3600);

pub(super) fn run(args: RunArgs) -> anyhow::Result<()> {
    ferrovia_host::memory::keep_small();
    app::run(args.config()?)
}

impl RunArgs {
    fn config(self) -> anyhow::Result<Config> {
        ensure!(
            !self.sync_period.is_zero(),
            "--sync-period: must be greater than 0"
        );
        ensure!(
            self.sync_period <= LONGEST_PERIOD,
            "--sync-period: must not be greater than a day"
        );
        ensure!(
            self.min_sync_period <= self.sync_period,
            "--min-sync-period: must not be greater than --sync-period"
        );
        Ok(Config {
            settings: self.shape.settings()?,
            manifests: self.shape.manifests,
            pace: Pace {
                min_sync_period: self.min_sync_period,
                sync_period: self.sync_period,
            },
            counters: !self.no_counters,
            once: self.once,
        })
    }
}

/// Reads a time as kube-proxy's flags have it: `30s`, `1m30s`, `500ms`, `0`.
fn duration(text: &str) -> anyhow::Result<Duration> {
    const UNITS: [(&str, f64); 6] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let problem = || format!("{text:?} is not a time such as 30s, 1m30s or 500ms");
    let mut rest = text;
    let mut seconds = 0.0;
    ensure!(!rest.is_empty(), problem());
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .with_context(problem)?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let (_, factor) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .with_context(problem)?;
        seconds += number.parse::<f64>().with_context(problem)? * factor;
        rest = tail;
    }
    Duration::try_from_secs_f64(seconds).with_context(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_kube_proxy_writes_them() {
        let read = |text| duration(text).map(|time| time.as_millis()).ok();
        assert_eq!(read("30s"), Some(30_000));
        assert_eq!(read("1m30s"), Some(90_000));
        assert_eq!(read("1h0m0s"), Some(3_600_000));
        assert_eq!(read("500ms"), Some(500));
        assert_eq!(read("1.5s"), Some(1_500));
        assert_eq!(read("0"), Some(0));
        for bad in [
            "",
            "30",
            "s",
            "-5s",
            "1x",
            "1s2",
            "99999999999999999999h",
            ".",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
