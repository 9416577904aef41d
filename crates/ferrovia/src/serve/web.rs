//! The page for people: one file, served with the admin API behind it to whoever may open the address, which is this machine by default.
//!
//! A browser runs other people's pages too, so every request is looked at (`guard.rs`): the name it was made to must be one that nobody can
//! point at us, and it must not come from another origin. What the page may do is bounded by a policy that names its script and
//! style by their hashes (`page.rs`).

mod guard;
mod page;

use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio::runtime::Handle;

use self::guard::Guard;
use self::page::Page;
use crate::serve::admin::{self, Admin, Door};
use crate::serve::http::answer::{Answer, TEXT, answer, not_found, set};
use crate::serve::http::server::Handler;
use crate::serve::http::start::{self, Name};
use crate::serve::http::{Bind, BindError, Server};

/// A few browsers with a few connections each.
const CONNECTIONS: usize = 64;
/// A page stays open; it comes back by itself when its connection ends.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Starts to serve the page.
///
/// # Errors
/// If its port is taken and it was to fail then.
pub fn serve_page(runtime: &Handle, bind: &Bind, admin: Arc<Admin>) -> Result<Server, BindError> {
    let name = Name {
        what: "the page",
        reason: "FailedToStartPage",
    };
    let pages = Pages {
        guard: Guard::new(bind.address.ip()),
        page: Page::new(),
        admin,
    };
    start::start(runtime, &name, bind, CONNECTIONS, pages)
}

struct Pages {
    guard: Guard,
    page: Page,
    admin: Arc<Admin>,
}

impl Handler for Pages {
    const LIFETIME: Duration = LIFETIME;

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let mut answer = match self.guard.check(request.headers()) {
            Err(reason) => answer(StatusCode::FORBIDDEN, TEXT, format!("{reason}\n")),
            Ok(()) => self.allowed(&request).await,
        };
        self.protect(&mut answer);
        answer
    }
}

impl Pages {
    async fn allowed(&self, request: &Request<Incoming>) -> Answer {
        let path = request.uri().path();
        if path.starts_with("/api/") {
            let (method, uri) = (request.method(), request.uri());
            return admin::answer(&self.admin, Door::Page, method, uri).await;
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let code = StatusCode::METHOD_NOT_ALLOWED;
            let mut refusal = answer(code, TEXT, "nothing can be changed here\n");
            set(&mut refusal, ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        match path {
            "/" => answer(StatusCode::OK, "text/html; charset=utf-8", self.page.text()),
            _ => not_found(),
        }
    }

    /// Headers that every answer has, errors too.
    fn protect(&self, answer: &mut Answer) {
        let policy = self.page.policy().clone();
        set(answer, CONTENT_SECURITY_POLICY, policy);
        for (name, value) in [
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (X_FRAME_OPTIONS, "DENY"),
            (CACHE_CONTROL, "no-store"),
            (
                HeaderName::from_static("cross-origin-opener-policy"),
                "same-origin",
            ),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                "same-origin",
            ),
        ] {
            set(answer, name, HeaderValue::from_static(value));
        }
    }
}
