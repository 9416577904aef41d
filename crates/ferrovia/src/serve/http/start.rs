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
use crate::kube_event::{Notice, Noticeboard, Regarding, Severity};

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
    "cannot listen on {address} for {what}: {cause}; free the port, choose another, or do without bindAddressHardFail"
)]
pub struct BindError {
    what: &'static str,
    address: SocketAddr,
    cause: io::Error,
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
pub(crate) struct Name {
    /// In logs.
    pub(crate) what: &'static str,
    /// As the reason of a notice.
    pub(crate) reason: &'static str,
}

impl Name {
    /// Tells of a port that cannot be had, and makes an error of it.
    fn refuse(&self, bind: &Bind, cause: io::Error) -> BindError {
        (bind.notices)(Notice {
            regarding: Regarding::Node,
            severity: Severity::Warning,
            reason: self.reason,
            action: "StartKubeProxy",
            note: format!("cannot listen on {}: {cause}", bind.address),
        });
        BindError {
            what: self.what,
            address: bind.address,
            cause,
        }
    }
}

/// Starts a server. Its first try to listen is made here, on the caller's thread.
pub(crate) fn start<H: Handler>(
    runtime: &Handle,
    name: &Name,
    bind: &Bind,
    connections: usize,
    handler: H,
) -> Result<Server, BindError> {
    let what = name.what;
    let first = match listen(bind.address) {
        Ok(listener) => Some(listener),
        Err(error) if bind.hard_fail => return Err(name.refuse(bind, error)),
        Err(error) => {
            tracing::error!(address = %bind.address, %error, "cannot listen for {what}; trying again every 5 s");
            None
        }
    };
    let address = first.as_ref().and_then(|first| first.local_addr().ok());
    let (tell, address) = watch::channel(address);
    let wanted = bind.address;
    let task = runtime.spawn(async move {
        let listener = open(first, what, wanted).await;
        let address = listener.local_addr().unwrap_or(wanted);
        tracing::info!(%address, "listening for {what}");
        tell.send_replace(Some(address));
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
    first: Option<std::net::TcpListener>,
    what: &str,
    address: SocketAddr,
) -> tokio::net::TcpListener {
    let mut next = first;
    loop {
        match next.map(tokio::net::TcpListener::from_std) {
            Some(Ok(listener)) => return listener,
            Some(Err(error)) => tracing::error!(%address, %error, "cannot wait for clients"),
            None => {}
        }
        sleep(RETRY).await;
        // That it failed is known; the same every five seconds is no news.
        next = listen(address)
            .inspect_err(
                |error| tracing::debug!(%address, %error, "still cannot listen for {what}"),
            )
            .ok();
    }
}
