//! From a completed [`Document`](super::file::Document) to values that can be used. Nothing is checked without being turned into what it means,
//! so no later stage checks again; and all that is wrong is told at once, each with its field.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferrovia_core::desired::{LocalSetting, NodePortSetting};
use ferrovia_core::family::Family;
use ferrovia_core::model::{parse_cidr, parse_ip};
use ipnet::IpNet;

use super::duration::GoDuration;
use super::flags::split_host_port;

/// A value that cannot be used, in the words of Kubernetes' field errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, as in the file.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

/// Collects what is wrong. Every method answers with a value that can be used; if it had to make one up, there is an error.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    errors: Vec<FieldError>,
}

impl Checks {
    pub(super) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    /// `value` is not what the field may hold.
    pub(super) fn invalid(
        &mut self,
        field: impl Into<String>,
        value: impl fmt::Display,
        why: &str,
    ) {
        self.add(field, format!("Invalid value: {value}: {why}"));
    }

    pub(crate) fn invalid_text(&mut self, field: impl Into<String>, value: &str, why: &str) {
        let value: String = value.chars().take(100).collect();
        self.add(field, format!("Invalid value: {value:?}: {why}"));
    }

    pub(super) fn forbidden(&mut self, field: impl Into<String>, why: &str) {
        self.add(field, format!("Forbidden: {why}"));
    }

    fn add(&mut self, field: impl Into<String>, problem: String) {
        self.errors.push(FieldError {
            field: field.into(),
            problem,
        });
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(
        &mut self,
        field: &str,
        value: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let found = words.iter().find(|(word, _)| *word == value);
        if found.is_none() {
            let value: String = value.chars().take(100).collect();
            let words: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            self.add(
                field,
                format!(
                    "Unsupported value: {value:?}: supported values: {}",
                    words.join(", ")
                ),
            );
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// A number within bounds, both included.
    pub(super) fn within(&mut self, field: &str, value: i32, low: i32, high: i32) -> i32 {
        if !(low..=high).contains(&value) {
            let why = format!("must be within the range [{low}, {high}]");
            self.invalid(field, value, &why);
        }
        value.clamp(low, high)
    }

    pub(super) fn not_negative(&mut self, field: &str, value: i32) -> u32 {
        u32::try_from(value).unwrap_or_else(|_| {
            self.invalid(field, value, "must be greater than or equal to 0");
            0
        })
    }

    pub(crate) fn time(&mut self, field: &str, value: GoDuration) -> Duration {
        value.to_std().unwrap_or_else(|| {
            self.invalid_text(
                field,
                &value.to_string(),
                "must be greater than or equal to 0",
            );
            Duration::ZERO
        })
    }

    pub(crate) fn positive_time(&mut self, field: &str, value: GoDuration) -> Duration {
        match value.to_std() {
            Some(time) if !time.is_zero() => time,
            _ => {
                self.invalid_text(field, &value.to_string(), "must be greater than 0");
                Duration::ZERO
            }
        }
    }

    /// An address, or none if it is the unspecified one.
    pub(super) fn bind_address(&mut self, field: &str, value: &str) -> Option<IpAddr> {
        let ip = parse_ip(value);
        if ip.is_none() {
            self.invalid_text(
                field,
                value,
                "must be a plain IP address, such as 192.0.2.1 or 2001:db8::1",
            );
        }
        ip.filter(|ip| !ip.is_unspecified())
    }

    /// Where a server listens; none if the port is 0.
    pub(super) fn server(&mut self, field: &str, value: &str) -> Option<SocketAddr> {
        let Some((host, port)) = split_host_port(value) else {
            self.invalid_text(field, value, "must be IP:port");
            return None;
        };
        let ip = parse_ip(host);
        if ip.is_none() {
            self.invalid_text(field, host, "must be a valid IP");
        }
        let port = Some(port)
            .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|port| port.parse::<u16>().ok());
        if port.is_none() {
            self.invalid_text(field, value, "must have a valid port, or 0 for no server");
        }
        let port = port.filter(|port| *port != 0)?;
        Some(SocketAddr::new(ip?, port))
    }

    pub(crate) fn cidrs(&mut self, field: &str, values: &[String]) -> Vec<IpNet> {
        let mut nets = Vec::new();
        for (position, value) in values.iter().enumerate() {
            match parse_cidr(value) {
                Some(net) => nets.push(net),
                None => self.invalid_text(
                    format!("{field}[{position}]"),
                    value,
                    "must be a valid CIDR, such as 192.0.2.0/24",
                ),
            }
        }
        nets
    }

    /// The pods' ranges: none, one, or one of each family.
    pub(super) fn cluster_cidr(&mut self, value: &str) -> Vec<IpNet> {
        const FIELD: &str = "clusterCIDR";
        const PAIR: &str =
            "must be at most one range of each family, such as 10.100.0.0/16,fde4:8dba:82e1::/48";
        if value.is_empty() {
            return Vec::new();
        }
        let values: Vec<&str> = value.split(',').collect();
        if values.len() > 2 {
            self.invalid_text(FIELD, value, PAIR);
            return Vec::new();
        }
        let mut nets = Vec::new();
        for (position, part) in values.iter().enumerate() {
            match parse_cidr(part) {
                Some(net) => nets.push(net),
                None => self.invalid_text(
                    format!("{FIELD}[{position}]"),
                    part,
                    "must be a valid CIDR (such as 10.100.0.0/16 or fde4:8dba:82e1::/48), without blanks",
                ),
            }
        }
        if let [first, second] = nets.as_slice()
            && Family::of_net(first) == Family::of_net(second)
        {
            self.invalid_text(FIELD, value, PAIR);
        }
        nets
    }

    /// Where node ports answer.
    pub(super) fn node_ports(&mut self, values: &[String]) -> NodePortSetting {
        const FIELD: &str = "nodePortAddresses";
        match values {
            [] => return NodePortSetting::Any,
            [word] if word == "primary" => return NodePortSetting::Primary,
            [word] if word == "all" => return NodePortSetting::Any,
            _ => {}
        }
        if let Some(position) = values.iter().position(|v| v == "primary" || v == "all") {
            self.invalid_text(
                format!("{FIELD}[{position}]"),
                &values[position],
                "cannot be combined with anything else",
            );
            return NodePortSetting::Primary;
        }
        NodePortSetting::Cidrs(self.cidrs(FIELD, values))
    }

    /// How pods' traffic is told.
    pub(super) fn local(
        &mut self,
        mode: &str,
        detect: &super::file::DetectLocal,
        cidr: &str,
    ) -> LocalSetting {
        #[derive(Clone, Copy)]
        enum By {
            ClusterCidr,
            NodeCidr,
            Bridge,
            Prefix,
        }
        let words = [
            ("BridgeInterface", By::Bridge),
            ("ClusterCIDR", By::ClusterCidr),
            ("InterfaceNamePrefix", By::Prefix),
            ("NodeCIDR", By::NodeCidr),
        ];
        match self.word("detectLocalMode", mode, &words) {
            None | Some(By::NodeCidr) => LocalSetting::NodeCidr,
            Some(By::ClusterCidr) => LocalSetting::ClusterCidr(self.cluster_cidr(cidr)),
            Some(By::Bridge) => LocalSetting::Interface(self.interface(
                "detectLocal.bridgeInterface",
                "--pod-bridge-interface",
                &detect.bridge_interface,
            )),
            Some(By::Prefix) => LocalSetting::InterfacePrefix(self.interface(
                "detectLocal.interfaceNamePrefix",
                "--pod-interface-name-prefix",
                &detect.interface_name_prefix,
            )),
        }
    }

    /// The name of an interface, or the beginning of one. It ends up in rules and in what `plan` prints.
    fn interface(&mut self, field: &str, flag: &str, name: &str) -> String {
        /// The kernel's limit.
        const LONGEST: usize = 15;
        let fits = name
            .bytes()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b'"' | b'\\' | b'*'));
        if name.is_empty() {
            let why = format!("must not be empty in this detectLocalMode ({flag})");
            self.invalid_text(field, name, &why);
        } else if !fits || name.len() > LONGEST {
            self.invalid_text(
                field,
                name,
                "must be the name of an interface: at most 15 characters, no blanks, none of / \" \\ *",
            );
        }
        name.to_owned()
    }

    /// A size in bytes as the API writes quantities: digits, perhaps with decimals, and a unit such as `Ki`.
    pub(super) fn quantity(&mut self, field: String, value: &str) -> usize {
        const UNITS: [(&str, f64); 10] = [
            ("", 1.0),
            ("n", 1e-9),
            ("u", 1e-6),
            ("m", 1e-3),
            ("k", 1e3),
            ("M", 1e6),
            ("G", 1e9),
            ("Ki", 1024.0),
            ("Mi", 1_048_576.0),
            ("Gi", 1_073_741_824.0),
        ];
        let end = value
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(value.len());
        let (number, unit) = value.split_at(end);
        let factor = UNITS.iter().find(|(name, _)| *name == unit);
        match (number.parse::<f64>(), factor) {
            (Ok(number), Some((_, factor))) => (number * factor) as usize,
            _ => {
                self.invalid_text(field, value, "must be a size such as 0, 4096 or 64Ki");
                0
            }
        }
    }

    /// Feature gates, each error on the gate's own path.
    pub(super) fn gates(&mut self, wanted: &BTreeMap<String, bool>) -> super::gates::FeatureGates {
        super::gates::FeatureGates::with(wanted).unwrap_or_else(|errors| {
            for error in errors {
                self.add("featureGates", error.to_string());
            }
            super::gates::FeatureGates::default()
        })
    }
}
