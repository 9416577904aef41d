//! The command line of the comparison.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

use super::{COMPARE, remote};

const USAGE: &str = "\
usage: bench/compare --kube-proxy FILE [--server http://ADDRESS:PORT] [--services NUMBER] [--changes NUMBER] [--mode MODE]

Runs a kube-proxy and this proxy, one after the other, in network namespaces made for the purpose, and measures both with packets.
Needs root. Nothing of the machine's own network is touched.

  --kube-proxy FILE   the kube-proxy to compare with
  --server URL        an API server to make the objects in, as `kubectl proxy` offers it; without it, one of the lab is used
                      (objects are made in a namespace ferrovia-compare, and removed in the end)
  --services NUMBER   how many Services there are (default 1000)
  --changes NUMBER    how many endpoint changes are timed (default 20)
  --mode MODE         nftables (default), iptables, ipvs";

/// What is compared.
pub(super) struct Request {
    pub(super) kube_proxy: PathBuf,
    pub(super) server: Option<SocketAddr>,
    pub(super) services: usize,
    pub(super) changes: usize,
    pub(super) mode: String,
}

impl Request {
    /// None if only help is asked for, which is printed then.
    pub(super) fn read(arguments: &[String]) -> anyhow::Result<Option<Self>> {
        if arguments.iter().any(|argument| argument == "--help") {
            println!("{USAGE}");
            return Ok(None);
        }
        let mut kube_proxy = None;
        let mut request = Self {
            kube_proxy: PathBuf::new(),
            server: None,
            services: 1000,
            changes: 20,
            mode: "nftables".to_owned(),
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{name} wants a value"));
            match name.as_str() {
                // The one says what to do, the other is Cargo's.
                COMPARE | "--bench" => {}
                "--kube-proxy" => kube_proxy = Some(PathBuf::from(value()?)),
                "--server" => request.server = Some(remote::parse(value()?)?),
                "--services" => request.services = number(name, value()?)?,
                "--changes" => request.changes = number(name, value()?)?,
                "--mode" => value()?.clone_into(&mut request.mode),
                _ => bail!("{name} is not known\n{USAGE}"),
            }
        }
        let kube_proxy = kube_proxy.with_context(|| format!("--kube-proxy is missing\n{USAGE}"))?;
        request.kube_proxy = kube_proxy
            .canonicalize()
            .with_context(|| format!("--kube-proxy {}", kube_proxy.display()))?;
        Ok(Some(request))
    }
}

fn number(name: &str, text: &str) -> anyhow::Result<usize> {
    let number = text
        .parse()
        .with_context(|| format!("{name}: {text} is not a number"))?;
    ensure!(number > 0, "{name}: one at least");
    Ok(number)
}
