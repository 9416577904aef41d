//! Times: seconds since 1970 in protobuf, RFC 3339 in UTC everywhere else.

use prost::Message;
use serde::{Deserialize, Deserializer, de};

/// Year 0 and year 9999, beyond which the API has no text for a time.
const FIRST: i64 = -62_167_219_200;
const LAST: i64 = 253_402_300_799;

const DAY: i64 = 86_400;

/// `metav1.Time`. One without seconds is no time at all: the API server writes an unset time as an empty message.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TimeMessage {
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
}

impl TimeMessage {
    /// The time as JSON has it.
    pub fn to_text(self) -> Option<String> {
        let seconds = self.seconds?.clamp(FIRST, LAST);
        let (year, month, day) = civil(seconds.div_euclid(DAY));
        let of_day = seconds.rem_euclid(DAY);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        Some(format!(
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        ))
    }

    /// Reads a time in UTC, as JSON has it.
    pub fn of_text(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let [year, month, day] = numbers(date, '-')?;
        let [hour, minute, second] = numbers(time, ':')?;
        let is_time = (0..24).contains(&hour) && (0..60).contains(&minute);
        let is_date = (0..=9999).contains(&year) && (1..=12).contains(&month);
        if !is_time || !is_date || !(1..=31).contains(&day) || !(0..60).contains(&second) {
            return None;
        }
        let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
        Some(Self {
            seconds: Some(seconds),
        })
    }
}

impl<'de> Deserialize<'de> for TimeMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::of_text(&text).ok_or_else(|| de::Error::custom("not a time in UTC"))
    }
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

/// Days from 1970 to a date of the Gregorian calendar. Years are counted from March, so that the day in question of a leap year is their last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date that many days after 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(seconds: i64) -> String {
        let time = TimeMessage {
            seconds: Some(seconds),
        };
        time.to_text().unwrap()
    }

    #[test]
    fn times_are_written_as_json_has_them() {
        assert_eq!(text(0), "1970-01-01T00:00:00Z");
        assert_eq!(text(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(text(1_767_323_045), "2026-01-02T03:04:05Z");
        assert_eq!(text(-1), "1969-12-31T23:59:59Z");
        assert_eq!(text(i64::MIN), "0000-01-01T00:00:00Z");
        assert_eq!(text(i64::MAX), "9999-12-31T23:59:59Z");
        assert_eq!(TimeMessage::default().to_text(), None);
    }

    #[test]
    fn only_times_in_utc_are_read() {
        for bad in [
            "",
            "Z",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05+01:00",
            "2026-13-02T03:04:05Z",
            "2026-01-02T03:04Z",
            "99999999999999999999-01-02T03:04:05Z",
        ] {
            assert_eq!(TimeMessage::of_text(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_the_time_it_was_made_of(seconds in FIRST..=LAST) {
            let time = TimeMessage::of_text(&text(seconds)).unwrap();
            prop_assert_eq!(time.seconds, Some(seconds));
        }
    }
}
