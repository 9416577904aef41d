//! Lists in pages, where a watch-list fails.

use http::Response;
use kube::client::Body;
use tokio::time::Instant;

use ferrovia_core::store::Event;
use ferrovia_core::wire::Object;

use super::api::{RequestError, Shape};
use super::chunks::Chunks;
use super::decode::{Fault, Identity, ListMetadata, Status};
use super::format::{Encoding, ListPart};
use super::items::NoList;
use super::reflect::{Failure, Reflector};
use super::resource::Page;

impl Reflector {
    /// Lists everything, a page at a time, and remembers where to watch from.
    pub(super) async fn list_pages(&mut self) -> Result<(), Failure> {
        self.known.begin_list();
        let mut page = self.first_page();
        loop {
            let deadline = Instant::now() + self.api.times().page;
            let answer = match self
                .ask_for(
                    Shape::Whole,
                    &self.resource.page(&page),
                    self.api.times().page,
                )
                .await
            {
                Err(RequestError::Refused { status, .. })
                    if status.is_gone() || status.is_ahead() =>
                {
                    page = self.other_page(&page, &status)?;
                    self.known.begin_list();
                    continue;
                }
                answer => answer?,
            };
            let ListMetadata {
                resource_version,
                next,
            } = self.take_page(answer, deadline).await?;
            if next.is_empty() {
                if resource_version.is_empty() {
                    return Err(Failure::Garbage("a list without a version".to_owned()));
                }
                self.listed_at(resource_version);
                break;
            }
            let next = Page::After(next);
            if page == next {
                return Err(Failure::Garbage("a list whose pages repeat".to_owned()));
            }
            page = next;
        }
        self.complete_list().await?;
        self.prove();
        Ok(())
    }

    /// From the watch cache if possible: after a restart of the API server all nodes list at once, and its storage could not serve that many
    /// consistent reads.
    fn first_page(&self) -> Page {
        match self.relist_from() {
            Some(version) => Page::NotOlderThan(version.to_owned()),
            None if self.needs_consistent_read => Page::Consistent,
            None => Page::Cached,
        }
    }

    /// What to ask for instead of a page whose resourceVersion the server does not have, no longer or not yet.
    fn other_page(&mut self, refused: &Page, status: &Status) -> Result<Page, Failure> {
        match refused {
            // The snapshot of the page before has expired.
            Page::After(_) => Ok(Page::Whole),
            Page::NotOlderThan(_) => {
                self.distrust(status.is_ahead());
                Ok(Page::Consistent)
            }
            Page::Cached | Page::Consistent | Page::Whole => Err(Failure::Expired),
        }
    }

    /// Tells the objects of one page as they come.
    async fn take_page(
        &mut self,
        answer: Response<Body>,
        mut deadline: Instant,
    ) -> Result<ListMetadata, Failure> {
        let mut items = Encoding::of(answer.headers()).list(self.resource.kind);
        let mut chunks = Chunks::new(answer);
        let mut metadata = None;
        loop {
            let mut verdict = Ok(());
            let is_more = chunks
                .read(deadline, &mut |piece| {
                    if verdict.is_ok() {
                        verdict = items.feed(piece, &mut |part| match part {
                            ListPart::Item(item) => self.take_item(item),
                            ListPart::Metadata(read) => metadata = read.ok(),
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

    fn take_item(&mut self, item: Result<Box<Object>, Fault>) {
        match item {
            Ok(object) => {
                if self.known.listed(&Identity::of(object.metadata())) {
                    self.news.push(Event::Applied(object));
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
