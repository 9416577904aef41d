//! A trace as text, for people on call: what happens first, then why.

use std::fmt::{self, Display, Formatter};

use super::{EndpointFate, Masquerade, Outcome, Trace};

/// Where values begin.
const COLUMN: usize = 12;
/// At most so many endpoints that are not used are shown one by one.
const MOST_UNUSED: usize = 20;

impl Outcome {
    /// The word for it.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Delivered => "DELIVERED",
            Self::Refused => "REFUSED",
            Self::Dropped => "DROPPED",
            Self::NotAService => "NOT A SERVICE",
        }
    }
}

impl Display for Trace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.packet)?;
        writeln!(f, "{}: {}\n", self.outcome.in_words(), self.because)?;
        if let Some(service) = &self.service {
            let port = if service.port.is_empty() {
                String::new()
            } else {
                format!(":{}", service.port)
            };
            line(
                f,
                "service",
                format_args!("{}/{}{port}", service.namespace, service.name),
            )?;
            line(
                f,
                "by",
                format_args!(
                    "{} ({} mode)",
                    service.frontend.in_words(),
                    self.profile.mode
                ),
            )?;
            line(
                f,
                "policy",
                format_args!("{}: {}", service.policy, service.policy_because),
            )?;
            if let Some(topology) = &service.topology {
                line(f, "topology", topology)?;
            }
        }
        self.sources(f)?;
        self.endpoints(f)?;
        for (number, hint) in self.hints.iter().enumerate() {
            line(f, if number == 0 { "note" } else { "" }, hint)?;
        }
        Ok(())
    }
}

impl Trace {
    fn sources(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let concerns = match self.outcome {
            Outcome::Delivered => true,
            Outcome::NotAService => self.masquerade.is_on(),
            Outcome::Refused | Outcome::Dropped => false,
        };
        if !concerns {
            return Ok(());
        }
        let differs = self
            .endpoints
            .iter()
            .any(|e| e.used && e.masquerade != self.masquerade);
        let except = if differs { ", but see below" } else { "" };
        line(
            f,
            "masquerade",
            format_args!("{}{except}", self.masquerade.in_words()),
        )
    }

    fn endpoints(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.service.is_none() {
            return Ok(());
        }
        if self.endpoints.is_empty() {
            return line(f, "endpoints", "none");
        }
        let width = self
            .endpoints
            .iter()
            .map(|e| e.address.to_string().len())
            .max();
        let width = width.unwrap_or_default();
        let used = self.endpoints.iter().filter(|e| e.used);
        let unused: Vec<_> = self.endpoints.iter().filter(|e| !e.used).collect();
        let shown = used.chain(unused.iter().copied().take(MOST_UNUSED));
        for (number, endpoint) in shown.enumerate() {
            let label = if number == 0 { "endpoints" } else { "" };
            line(f, label, Row(endpoint, width, self.masquerade))?;
        }
        match unused.len().checked_sub(MOST_UNUSED) {
            None | Some(0) => Ok(()),
            Some(left) => line(f, "", format_args!("and {left} more that are not used")),
        }
    }
}

/// An endpoint, its address padded to a width, and what holds for the connection.
struct Row<'a>(&'a EndpointFate, usize, Masquerade);

impl Display for Row<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(endpoint, width, connection) = self;
        let address = endpoint.address.to_string();
        if endpoint.used {
            write!(
                f,
                "{:>6.1}%  {address:<width$}  {}",
                endpoint.chance * 100.0,
                endpoint.because
            )?;
        } else {
            write!(f, "      -  {address:<width$}  {}", endpoint.because)?;
        }
        if endpoint.local {
            write!(f, ", on this node")?;
        }
        if endpoint.used && endpoint.masquerade != *connection {
            write!(f, "; masquerade {}", endpoint.masquerade.in_words())?;
        }
        Ok(())
    }
}

fn line(f: &mut Formatter<'_>, label: &str, value: impl Display) -> fmt::Result {
    writeln!(f, "  {label:<COLUMN$}{value}")
}
