//! The command line of the comparison.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

use super::{COMPARE, remote};

/// The script prints it as well, without building anything.
const USAGE: &str = include_str!("usage.txt");
/// What both have. A kube-proxy's userspace mode reads Endpoints, which are not made here.
const MODES: [&str; 3] = ["nftables", "iptables", "ipvs"];

/// What is compared.
pub(super) struct Request {
    pub(super) kube_proxy: PathBuf,
    pub(super) server: Option<SocketAddr>,
    pub(super) services: usize,
    pub(super) changes: usize,
    /// Numbers of tracked flows that removing stale ones is measured with; none for the usual comparison.
    pub(super) flows: Vec<usize>,
    pub(super) mode: String,
    /// A real API server is measured, instead of the usual comparison.
    pub(super) api: bool,
    /// Numbers of Services in it, if not the usual ones.
    pub(super) sizes: Option<Vec<usize>>,
    /// How many nodes are simulated.
    pub(super) nodes: usize,
}

impl Request {
    /// None if only help is asked for, which is printed then.
    pub(super) fn read(arguments: &[String]) -> anyhow::Result<Option<Self>> {
        if arguments.iter().any(|argument| argument == "--help") {
            print!("{USAGE}");
            return Ok(None);
        }
        let mut kube_proxy = None;
        let mut request = Self {
            kube_proxy: PathBuf::new(),
            server: None,
            services: 1000,
            changes: 20,
            flows: Vec::new(),
            mode: "nftables".to_owned(),
            api: false,
            sizes: None,
            nodes: 500,
        };
        let mut changes = None;
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{name} wants a value"));
            match name.as_str() {
                // The one says what to do, the other is Cargo's.
                COMPARE | "--bench" => {}
                "--kube-proxy" => kube_proxy = Some(PathBuf::from(value()?)),
                "--server" => request.server = Some(remote::parse(value()?)?),
                "--services" => request.sizes = Some(numbers(name, value()?)?),
                "--changes" => changes = Some(number(name, value()?)?),
                "--api" => request.api = true,
                "--nodes" => request.nodes = number(name, value()?)?,
                "--flows" => request.flows = numbers(name, value()?)?,
                "--mode" => mode(value()?)?.clone_into(&mut request.mode),
                _ => bail!("{name} is not known\n{USAGE}"),
            }
        }
        request.take_numbers(changes)?;
        let kube_proxy = kube_proxy.with_context(|| format!("--kube-proxy is missing\n{USAGE}"))?;
        ensure!(
            request.flows.is_empty() || request.server.is_none(),
            "--flows uses the lab's API server; leave --server out"
        );
        ensure!(
            !request.api || (request.server.is_none() && request.flows.is_empty()),
            "--api starts an API server of its own; leave --server and --flows out"
        );
        request.kube_proxy = kube_proxy
            .canonicalize()
            .with_context(|| format!("--kube-proxy {}", kube_proxy.display()))?;
        Ok(Some(request))
    }

    fn take_numbers(&mut self, changes: Option<usize>) -> anyhow::Result<()> {
        let usual = if self.api { 1000 } else { self.changes };
        self.changes = changes.unwrap_or(usual);
        match self.sizes.as_deref() {
            Some([services]) => self.services = *services,
            Some(sizes) => ensure!(
                self.api && sizes.is_sorted(),
                "--services: several numbers, smallest first, are for --api"
            ),
            None => {}
        }
        Ok(())
    }
}

fn mode(name: &str) -> anyhow::Result<&str> {
    let modes = MODES.join(", ");
    ensure!(MODES.contains(&name), "--mode: {name} is none of {modes}");
    Ok(name)
}

fn numbers(name: &str, text: &str) -> anyhow::Result<Vec<usize>> {
    text.split(',').map(|text| number(name, text)).collect()
}

fn number(name: &str, text: &str) -> anyhow::Result<usize> {
    let number = text
        .parse()
        .with_context(|| format!("{name}: {text} is not a number"))?;
    ensure!(number > 0, "{name}: one at least");
    Ok(number)
}
