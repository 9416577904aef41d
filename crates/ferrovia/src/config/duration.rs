//! Times as Go writes them: `30s`, `1h0m0s`, `1.5s`. Both ways, and to the nanosecond, so that what is written reads back the same.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::ser::{Serialize, Serializer};

const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000 * MICROSECOND;
const SECOND: i64 = 1_000 * MILLISECOND;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// The units of the notation. Two characters look like a Greek mu, and Go reads both.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", MICROSECOND),
    ("\u{b5}s", MICROSECOND),
    ("\u{3bc}s", MICROSECOND),
    ("ms", MILLISECOND),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", HOUR),
];

/// A span of time in nanoseconds. It may be negative, because people may write so and must then hear which field it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(i64);

impl GoDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// Whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// A number of nanoseconds.
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// The time, unless it is negative.
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

/// A text that is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time such as 30s, 1m30s or 500ms")]
pub struct NotATime(String);

impl FromStr for GoDuration {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        parse(text).ok_or_else(|| NotATime(text.chars().take(40).collect()))
    }
}

fn parse(text: &str) -> Option<GoDuration> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(GoDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (part, tail) = leading_part(rest)?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    let signed = if is_negative { -total } else { total };
    i64::try_from(signed).ok().map(GoDuration)
}

/// One number with its unit, in nanoseconds, and what comes behind it.
fn leading_part(text: &str) -> Option<(i128, &str)> {
    let (whole, tail) = split_digits(text);
    let (fraction, tail) = match tail.strip_prefix('.') {
        Some(tail) => split_digits(tail),
        None => ("", tail),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = tail
        .find(|c: char| c.is_ascii_digit() || c == '.')
        .unwrap_or(tail.len());
    let (unit, tail) = tail.split_at(end);
    let (_, nanoseconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let nanoseconds = i128::from(*nanoseconds);
    // Empty digits are none; too many of them are an overflow, but of a fraction only the first can count.
    let whole: i64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let fraction = fraction.get(..fraction.len().min(15)).unwrap_or_default();
    let shifted = nanoseconds * fraction.parse::<i128>().unwrap_or(0);
    let part = i128::from(whole) * nanoseconds
        + shifted / 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    Some((part, tail))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        if magnitude == 0 {
            return f.write_str("0s");
        }
        // Below a second the unit is the largest that leaves a whole part; above, all of hours, minutes and seconds.
        let small = [
            (MICROSECOND, 1, "ns"),
            (MILLISECOND, MICROSECOND, "\u{b5}s"),
            (SECOND, MILLISECOND, "ms"),
        ];
        for (limit, unit, name) in small {
            if magnitude < limit.unsigned_abs() {
                return write_decimal(f, magnitude, unit.unsigned_abs(), name);
            }
        }
        let (hour, minute) = (HOUR.unsigned_abs(), MINUTE.unsigned_abs());
        if magnitude >= hour {
            write!(f, "{}h", magnitude / hour)?;
        }
        if magnitude >= minute {
            write!(f, "{}m", magnitude % hour / minute)?;
        }
        write_decimal(f, magnitude % minute, SECOND.unsigned_abs(), "s")
    }
}

/// A number of units with as many decimals as it needs.
fn write_decimal(f: &mut fmt::Formatter<'_>, value: u64, unit: u64, name: &str) -> fmt::Result {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return write!(f, "{whole}{name}");
    }
    let digits = usize::try_from(unit.ilog10()).unwrap_or(0);
    let decimals = format!("{rest:0digits$}");
    write!(f, "{whole}.{}{name}", decimals.trim_end_matches('0'))
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a time that may also be a bare number, which then counts nanoseconds: the form of `logging.flushFrequency` in old files.
pub(super) fn text_or_nanoseconds<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<GoDuration, D::Error> {
    struct Either;

    impl Visitor<'_> for Either {
        type Value = GoDuration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a time such as 5s, or a number of nanoseconds")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<GoDuration, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_i64<E: serde::de::Error>(self, nanoseconds: i64) -> Result<GoDuration, E> {
            Ok(GoDuration(nanoseconds))
        }

        fn visit_u64<E: serde::de::Error>(self, nanoseconds: u64) -> Result<GoDuration, E> {
            i64::try_from(nanoseconds)
                .map(GoDuration)
                .map_err(|_| E::custom("too many nanoseconds"))
        }

        fn visit_unit<E: serde::de::Error>(self) -> Result<GoDuration, E> {
            Ok(GoDuration::ZERO)
        }
    }

    deserializer.deserialize_any(Either)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_as_go_reads_them() {
        let read = |text: &str| text.parse::<GoDuration>().ok().map(|time| time.0);
        let cases = [
            ("30s", 30 * SECOND),
            ("1m30s", 90 * SECOND),
            ("1h0m0s", HOUR),
            ("2h22m", 2 * HOUR + 22 * MINUTE),
            ("500ms", 500 * MILLISECOND),
            ("1.5s", 1_500 * MILLISECOND),
            (".5s", 500 * MILLISECOND),
            ("1.s", SECOND),
            ("1us", 1_000),
            ("1\u{b5}s", 1_000),
            ("0", 0),
            ("0s", 0),
            ("-0", 0),
            ("-5s", -5 * SECOND),
            ("+5s", 5 * SECOND),
            ("0.000000001s", 1),
            ("0.0000000019999999999999999999999999s", 1),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), Some(expected), "{text:?}");
        }
        for bad in [
            "",
            "30",
            "s",
            "1x",
            "1s2",
            ".",
            "-",
            "--1s",
            "1 s",
            "99999999999999999999h",
            "2562048h",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn times_are_written_as_go_writes_them() {
        let cases = [
            (0, "0s"),
            (SECOND, "1s"),
            (30 * SECOND, "30s"),
            (15 * MINUTE, "15m0s"),
            (24 * HOUR, "24h0m0s"),
            (1_500 * MILLISECOND, "1.5s"),
            (90 * SECOND + MILLISECOND, "1m30.001s"),
            (500 * MILLISECOND, "500ms"),
            (1_500, "1.5\u{b5}s"),
            (7, "7ns"),
            (-5 * SECOND, "-5s"),
        ];
        for (nanoseconds, expected) in cases {
            assert_eq!(GoDuration(nanoseconds).to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(nanoseconds in any::<i64>()) {
            // The one value whose magnitude is no i64 is not worth a case of its own in the parser.
            prop_assume!(nanoseconds != i64::MIN);
            let time = GoDuration(nanoseconds);
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }

        #[test]
        fn no_text_is_too_odd(text in "\\PC*") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
