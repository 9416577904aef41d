//! Lists: complete, or in pages with the revision of the first page.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};

use super::body::Body;
use super::encoding::Encoding;
use super::kind::Kind;
use super::object::Object;
use super::protobuf;
use super::query::{ListOptions, Token, Version};
use super::status::Status;
use super::store::{Page, Store, Window};

/// The size of the pieces in which long responses are sent.
pub(super) const PIECE: usize = 64 << 10;

/// Responds to a list request.
pub(super) fn list(
    store: &Store,
    kind: Kind,
    namespace: Option<&str>,
    options: &ListOptions,
    has_cache: bool,
    encoding: Encoding,
) -> Result<Body, Status> {
    let revision = revision(store, kind, options)?;
    let limit = match (options.version, &options.token) {
        // Real servers then respond from their cache, and ignore the limit.
        (Version::Any, None) if has_cache => None,
        _ => options.limit,
    };
    let window = Window {
        namespace,
        selector: &options.selector,
        start: options.token.as_ref().map(|token| token.start.clone()),
        revision,
        limit: limit.unwrap_or(usize::MAX),
    };
    let page = store.page(kind, &window);
    let metadata = metadata(&page, revision, options);
    Ok(match encoding {
        Encoding::Json => Body::pieces(pieces(kind, &metadata, page)),
        Encoding::Protobuf => Body::pieces(protobuf_pieces(kind, &metadata, page)),
    })
}

/// The revision to show.
fn revision(store: &Store, kind: Kind, options: &ListOptions) -> Result<u64, Status> {
    let current = store.revision();
    if let Some(token) = &options.token {
        return match token.revision {
            None => Ok(current),
            Some(revision) if revision < store.oldest(kind) => {
                let present = Token {
                    revision: None,
                    start: token.start.clone(),
                };
                Err(Status::continue_expired(present.encode()))
            }
            Some(revision) => Ok(revision.min(current)),
        };
    }
    match options.version {
        Version::NotOlderThan(asked) | Version::Exact(asked) if asked > current => {
            Err(Status::too_large_version(asked, current))
        }
        Version::Exact(asked) if asked < store.oldest(kind) => Err(Status::list_expired()),
        Version::Exact(asked) => Ok(asked),
        Version::Newest | Version::Any | Version::NotOlderThan(_) => Ok(current),
    }
}

fn metadata(page: &Page, revision: u64, options: &ListOptions) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let Some((start, left)) = &page.rest {
        let token = Token {
            revision: Some(revision),
            start: start.clone(),
        };
        metadata["continue"] = json!(token.encode());
        // With a selector the number is unknown.
        if options.selector.is_empty() {
            metadata["remainingItemCount"] = json!(left);
        }
    }
    metadata
}

/// The list in pieces. Objects are copied piece by piece, while the client reads.
fn pieces(kind: Kind, metadata: &Value, page: Page) -> impl Iterator<Item = Bytes> + use<> {
    let head = format!(
        r#"{{"kind":"{}List","apiVersion":"{}","metadata":{metadata},"items":["#,
        kind.name(),
        kind.api_version(),
    );
    let mut piece = BytesMut::from(head.as_str());
    let mut objects = page.objects.into_iter().enumerate();
    let mut finished = false;
    std::iter::from_fn(move || {
        if finished {
            return None;
        }
        piece.reserve(PIECE);
        while piece.len() < PIECE {
            let Some((place, object)) = objects.next() else {
                finished = true;
                piece.extend_from_slice(b"]}\n");
                break;
            };
            if place > 0 {
                piece.extend_from_slice(b",");
            }
            piece.extend_from_slice(&object.json);
        }
        Some(piece.split().freeze())
    })
}

/// The same in protobuf.
fn protobuf_pieces(
    kind: Kind,
    metadata: &Value,
    page: Page,
) -> impl Iterator<Item = Bytes> + use<> {
    let length = |object: &Arc<Object>| protobuf::item_length(&object.protobuf);
    let items = page.objects.iter().map(length).sum();
    let mut piece = BytesMut::from(&*protobuf::list_head(kind, metadata, items));
    let mut objects = page.objects.into_iter();
    std::iter::from_fn(move || {
        while piece.len() < PIECE {
            let Some(object) = objects.next() else { break };
            piece.extend_from_slice(&protobuf::item(&object.protobuf));
        }
        (!piece.is_empty()).then(|| piece.split().freeze())
    })
}
