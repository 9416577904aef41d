//! Lists in pages, for servers that do not stream them.

use http::Response;
use kube::client::Body;
use tokio::time::Instant;

use ferrovia_core::store::Event;

use super::api::RequestError;
use super::chunks::Chunks;
use super::decode::{self, Fault, Identity, LONGEST_OBJECT, ListMetadata};
use super::items::{Items, NoList, Part};
use super::reflect::{Failure, Reflector};
use super::resource::Page;

impl Reflector {
    /// Lists everything, a page at a time, and remembers where to watch from.
    pub(super) async fn list_pages(&mut self) -> Result<(), Failure> {
        self.known.begin_list();
        let mut page = Page::default();
        loop {
            let answer = match self.ask(&self.resource.page(&page)).await {
                // The page before is forgotten by now: everything at once, then.
                Err(RequestError::Refused { status, .. })
                    if status.is_gone() && page.after.is_some() =>
                {
                    self.known.begin_list();
                    page = Page {
                        after: None,
                        whole: true,
                    };
                    continue;
                }
                answer => answer?,
            };
            let ListMetadata {
                resource_version,
                next,
            } = self.take_page(answer).await?;
            if next.is_empty() {
                if resource_version.is_empty() {
                    return Err(Failure::Garbage("a list without a version".to_owned()));
                }
                self.version = Some(resource_version);
                break;
            }
            if page.after.as_ref() == Some(&next) {
                return Err(Failure::Garbage("a list whose pages repeat".to_owned()));
            }
            page.after = Some(next);
        }
        self.complete_list().await?;
        self.prove();
        Ok(())
    }

    /// Tells the objects of one page as they come.
    async fn take_page(&mut self, answer: Response<Body>) -> Result<ListMetadata, Failure> {
        let mut deadline = Instant::now() + self.api.times().page;
        let mut chunks = Chunks::new(answer.into_body());
        let mut items = Items::new(LONGEST_OBJECT);
        let mut metadata = None;
        loop {
            let mut verdict = Ok(());
            let is_more = chunks
                .read(deadline, &mut |piece| {
                    if verdict.is_ok() {
                        verdict = items.feed(piece, &mut |part| match part {
                            Part::Item(bytes) => self.take_item(bytes),
                            Part::TooLong(start) => self.take_fault(&decode::too_long(start)),
                            Part::Metadata(bytes) => metadata = decode::list_metadata(bytes).ok(),
                        });
                    }
                })
                .await?;
            verdict.map_err(|error: NoList| Failure::Garbage(error.to_string()))?;
            let telling = Instant::now();
            self.tell().await?;
            // A receiver that lags is no fault of the server's.
            deadline += telling.elapsed();
            if items.is_done() {
                return metadata
                    .ok_or_else(|| Failure::Garbage("a list without metadata".to_owned()));
            }
            if !is_more {
                return Err(Failure::Garbage("the list broke off".to_owned()));
            }
        }
    }

    fn take_item(&mut self, bytes: &[u8]) {
        match decode::object(self.resource.kind, bytes) {
            Ok(object) => {
                if self.known.listed(&Identity::of(object.metadata())) {
                    self.news.push(Event::Applied(Box::new(object)));
                }
            }
            Err(fault) => self.take_fault(&fault),
        }
    }

    fn take_fault(&mut self, fault: &Fault) {
        self.log_fault(fault);
        self.known.unreadable_in_list(fault.object.as_ref());
    }
}
