//! Starting a server whose port may be taken: try for ever, or fail at once.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::listen::listen;
use super::pool::Pool;
use super::server::{Handler, serve};
use crate::notice::{Notice, Noticeboard, Regarding, Severity};

/// The pause between two tries, as long as kube-proxy's.
const RETRY: Duration = Duration::from_secs(5);

/// Where a server listens.
#[derive(Clone)]
pub struct Bind {
    /// The address; the IPv4 wildcard means both families. Port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// Fail at once if it is taken, rather than try again and again.
    pub hard_fail: bool,
    /// Who hears of such a failure.
    pub notices: Noticeboard,
}

/// A server's port cannot be had, and it was to fail then.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for {what}: {source}; free the port, choose another, or do without bindAddressHardFail"
)]
pub struct BindError {
    what: &'static str,
    address: SocketAddr,
    source: io::Error,
}

/// A server that runs, or tries to; it ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: watch::Receiver<Option<SocketAddr>>,
    task: AbortHandle,
}

impl Server {
    /// Where it listens; none while its port is taken.
    pub fn address(&self) -> Option<SocketAddr> {
        *self.address.borrow()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a server is called.
pub(super) struct Name {
    /// In logs.
    pub(super) what: &'static str,
    /// As the reason of a notice.
    pub(super) reason: &'static str,
}

/// Starts a server. Its first try to listen is made here, on the caller's thread.
pub(super) fn start<H: Handler>(
    runtime: &Handle,
    name: &Name,
    bind: Bind,
    connections: usize,
    handler: H,
) -> Result<Server, BindError> {
    let what = name.what;
    let first = listen(bind.address);
    if let Err(error) = &first {
        if bind.hard_fail {
            let note = format!("cannot listen on {}: {error}", bind.address);
            (bind.notices)(Notice {
                regarding: Regarding::Node,
                severity: Severity::Warning,
                reason: name.reason,
                action: "StartKubeProxy",
                note,
            });
        } else {
            tracing::error!(address = %bind.address, %error, "cannot listen for {what}; trying again every 5 s");
        }
    }
    let first = match first {
        Err(source) if bind.hard_fail => {
            return Err(BindError {
                what,
                address: bind.address,
                source,
            });
        }
        other => other.ok(),
    };
    let address = first.as_ref().and_then(|first| first.local_addr().ok());
    let (tell, address) = watch::channel(address);
    let task = runtime.spawn(async move {
        let listener = open(first, what, bind.address).await;
        tell.send_replace(listener.local_addr().ok());
        serve(
            listener,
            Arc::new(handler),
            Arc::new(Pool::new(connections)),
        )
        .await;
    });
    Ok(Server {
        address,
        task: task.abort_handle(),
    })
}

/// The first listener if there is one, or another as soon as the port is free.
async fn open(
    mut first: Option<std::net::TcpListener>,
    what: &str,
    address: SocketAddr,
) -> tokio::net::TcpListener {
    let mut last_error = String::new();
    loop {
        let result = first.take().map_or_else(|| listen(address), Ok);
        match result.and_then(tokio::net::TcpListener::from_std) {
            Ok(listener) => {
                tracing::info!(%address, "listening for {what}");
                return listener;
            }
            Err(error) => {
                // The same failure every five seconds is no news.
                let text = error.to_string();
                if text != last_error {
                    tracing::warn!(%address, %error, "still cannot listen for {what}");
                    last_error = text;
                }
            }
        }
        sleep(RETRY).await;
    }
}
