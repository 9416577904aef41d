//! The parameters of a request. A client may send any bytes; what is not text is not taken for any.

use super::problem::Problem;

/// What follows the question mark, decoded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads it. The head of a request is bounded, and so is this.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, Problem> {
        let pairs = text
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, true)?, decode(value, true)?))
        };
        let pairs: Option<Vec<_>> = pairs.map(pair).collect();
        pairs.map(Self).ok_or_else(|| {
            Problem::bad(
                "a parameter is not percent-encoded UTF-8",
                "encode it, for example a blank as %20",
            )
        })
    }

    /// A parameter; none if it is not there or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// A number.
    pub(super) fn number(&self, name: &str, default: usize) -> Result<usize, Problem> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        value.parse().map_err(|_| {
            Problem::bad(
                format!("{name}={value:?} is not a number"),
                format!("give a whole number, such as {name}={default}"),
            )
        })
    }

    /// A yes or no, no if it is not there.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(value) => Err(Problem::bad(
                format!("{name}={value:?} is neither true nor false"),
                format!("give {name}=true, or leave it out"),
            )),
        }
    }

    /// No parameter has another name than these: a misspelt one must not pass for none.
    pub(super) fn only(self, names: &[&str]) -> Result<Self, Problem> {
        let unknown = self.0.iter().find(|(name, _)| !names.contains(&&**name));
        match unknown {
            None => Ok(self),
            Some((name, _)) => Err(Problem::bad(
                format!("there is no parameter {name:?} here"),
                match names {
                    [] => "leave it out; there are none".to_owned(),
                    names => format!("use one of {}", names.join(", ")),
                },
            )),
        }
    }
}

/// Undoes percent-encoding; in a query `+` is a blank.
pub(super) fn decode(text: &str, is_query: bool) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if is_query => b' ',
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse(Some("filter=a+b%2fc&limit=7&empty=&&flag")).unwrap();
        assert_eq!(query.get("filter"), Some("a b/c"));
        assert_eq!(query.number("limit", 1), Ok(7));
        assert_eq!(query.number("offset", 5), Ok(5));
        assert_eq!(query.get("empty"), None);
        assert_eq!(Query::parse(None), Ok(Query::default()));
    }

    #[test]
    fn nonsense_is_said_to_be_nonsense() {
        for bad in ["a=%", "a=%2", "a=%zz", "a=%ff", "%c3=1"] {
            assert!(Query::parse(Some(bad)).is_err(), "{bad}");
        }
        let query = Query::parse(Some("limit=-1")).unwrap();
        assert!(query.number("limit", 1).is_err());
        assert!(query.only(&["limits"]).is_err());
    }
}
