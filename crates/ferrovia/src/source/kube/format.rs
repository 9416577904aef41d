//! The two encodings of the API: which one is asked for, and which one an answer has.

use std::sync::atomic::{AtomicBool, Ordering};

use ferrovia_core::wire::{Kind, Object};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};

use super::decode::{self, Fault, LONGEST_OBJECT, ListMetadata, News};
use super::items::{Items, NoList, Part};
use super::lines::{Line, Lines};
use super::protobuf::{self, Frame, FrameTooLarge, Frames};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";

/// The server may answer in JSON nevertheless: aggregated servers need not know protobuf.
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf,application/json";

/// How objects are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// What the API server stores, and what it can send with the least work and the fewest bytes.
    #[default]
    Protobuf,
    /// What every server can send.
    Json,
}

impl Encoding {
    /// The encoding that a list of media types, as in `Accept`, prefers of those we can read.
    pub fn preferred(media_types: &str) -> Self {
        let known = media_types
            .split(',')
            .find_map(|entry| match essence(entry) {
                PROTOBUF => Some(Self::Protobuf),
                JSON => Some(Self::Json),
                _ => None,
            });
        known.unwrap_or(Self::Json)
    }

    /// The encoding of an answer. What does not say that it is protobuf is read as JSON.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(CONTENT_TYPE);
        match value.and_then(|value| value.to_str().ok()).map(essence) {
            Some(PROTOBUF) => Self::Protobuf,
            _ => Self::Json,
        }
    }

    /// Decodes a watch of this kind.
    pub(super) fn events(self, kind: Kind) -> Events {
        let cutter = match self {
            Self::Json => EventCutter::Json(Lines::new(LONGEST_OBJECT)),
            Self::Protobuf => EventCutter::Protobuf(Frames::new(LONGEST_OBJECT)),
        };
        Events { kind, cutter }
    }

    /// Decodes a list of this kind.
    pub(super) fn list(self, kind: Kind) -> ListItems {
        let cutter = match self {
            Self::Json => ListCutter::Json(Items::new(LONGEST_OBJECT)),
            Self::Protobuf => ListCutter::Protobuf(protobuf::List::new(LONGEST_OBJECT)),
        };
        ListItems { kind, cutter }
    }
}

/// A media type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// The encoding that is asked for: the configured one, until a server refuses it.
#[derive(Debug)]
pub(super) struct Negotiation {
    wants_protobuf: AtomicBool,
}

impl Negotiation {
    pub(super) fn new(encoding: Encoding) -> Self {
        Self {
            wants_protobuf: AtomicBool::new(encoding == Encoding::Protobuf),
        }
    }

    /// The value of `Accept`.
    pub(super) fn accept(&self) -> &'static str {
        if self.wants_protobuf.load(Ordering::Relaxed) {
            PROTOBUF_OR_JSON
        } else {
            JSON
        }
    }

    /// Whether an answer refuses protobuf. Then everything is asked for in JSON from now on, this request once more among it.
    pub(super) fn is_refused(&self, code: StatusCode) -> bool {
        let is_refusal = matches!(
            code,
            StatusCode::NOT_ACCEPTABLE | StatusCode::UNSUPPORTED_MEDIA_TYPE
        );
        let is_refused = is_refusal && self.wants_protobuf.swap(false, Ordering::Relaxed);
        if is_refused {
            tracing::info!(
                code = code.as_u16(),
                "API server refused protobuf; using JSON"
            );
        }
        is_refused
    }
}

/// A watch that is being decoded.
#[derive(Debug)]
pub(super) struct Events {
    kind: Kind,
    cutter: EventCutter,
}

#[derive(Debug)]
enum EventCutter {
    Json(Lines),
    Protobuf(Frames),
}

impl Events {
    /// Takes in a piece and hands over every event that it completes. After an error nothing more can be read.
    pub(super) fn feed(
        &mut self,
        piece: &[u8],
        each: &mut dyn FnMut(Result<News, Fault>),
    ) -> Result<(), FrameTooLarge> {
        let kind = self.kind;
        match &mut self.cutter {
            EventCutter::Json(lines) => {
                lines.feed(piece, &mut |line| match line {
                    Line::Whole(line) if line.trim_ascii().is_empty() => {}
                    Line::Whole(line) => each(decode::news(kind, line)),
                    Line::TooLong(start) => each(Err(decode::too_long(start))),
                });
                Ok(())
            }
            EventCutter::Protobuf(frames) => frames.feed(piece, &mut |frame| match frame {
                Frame::Whole(frame) => each(protobuf::news(kind, frame)),
                Frame::TooLong(start) => each(Err(protobuf::frame_too_long(start))),
            }),
        }
    }

    /// The stream may have ended in the middle of an event.
    pub(super) fn is_half(&self) -> bool {
        match &self.cutter {
            EventCutter::Json(lines) => lines.is_half(),
            EventCutter::Protobuf(frames) => frames.is_half(),
        }
    }
}

/// A list that is being decoded.
#[derive(Debug)]
pub(super) struct ListItems {
    kind: Kind,
    cutter: ListCutter,
}

#[derive(Debug)]
enum ListCutter {
    Json(Items),
    Protobuf(protobuf::List),
}

/// A part of a list.
#[derive(Debug)]
pub(super) enum ListPart {
    Item(Result<Box<Object>, Fault>),
    Metadata(Result<ListMetadata, Fault>),
}

impl ListItems {
    /// Takes in a piece and hands over the parts that it completes.
    pub(super) fn feed(
        &mut self,
        piece: &[u8],
        each: &mut dyn FnMut(ListPart),
    ) -> Result<(), NoList> {
        let kind = self.kind;
        match &mut self.cutter {
            ListCutter::Json(items) => items.feed(piece, &mut |part| {
                each(match part {
                    Part::Item(item) => ListPart::Item(decode::object(kind, item).map(Box::new)),
                    Part::TooLong(start) => ListPart::Item(Err(decode::too_long(start))),
                    Part::Metadata(bytes) => ListPart::Metadata(decode::list_metadata(bytes)),
                });
            }),
            ListCutter::Protobuf(list) => list.feed(piece, &mut |part| {
                each(match part {
                    Part::Item(item) => ListPart::Item(protobuf::object(kind, item).map(Box::new)),
                    Part::TooLong(start) => ListPart::Item(Err(protobuf::item_too_long(start))),
                    Part::Metadata(bytes) => ListPart::Metadata(protobuf::list_metadata(bytes)),
                });
            }),
        }
    }

    /// All of the list has come.
    pub(super) fn is_done(&self) -> bool {
        match &self.cutter {
            ListCutter::Json(items) => items.is_done(),
            ListCutter::Protobuf(list) => list.is_done(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_first_media_type_that_can_be_read_is_preferred() {
        for (media_types, expected) in [
            (PROTOBUF, Encoding::Protobuf),
            (JSON, Encoding::Json),
            (
                "application/vnd.kubernetes.protobuf, */*",
                Encoding::Protobuf,
            ),
            (
                "application/json, application/vnd.kubernetes.protobuf",
                Encoding::Json,
            ),
            (
                "application/cbor,application/vnd.kubernetes.protobuf;q=0.9",
                Encoding::Protobuf,
            ),
            ("application/yaml", Encoding::Json),
            ("*/*", Encoding::Json),
            ("", Encoding::Json),
        ] {
            assert_eq!(Encoding::preferred(media_types), expected, "{media_types}");
        }
    }

    #[test]
    fn an_answer_is_read_as_what_it_says_it_is() {
        let of = |value: &'static str| {
            let value = HeaderValue::from_static(value);
            Encoding::of(&HeaderMap::from_iter([(CONTENT_TYPE, value)]))
        };
        assert_eq!(
            of("application/vnd.kubernetes.protobuf"),
            Encoding::Protobuf
        );
        assert_eq!(
            of("application/vnd.kubernetes.protobuf;stream=watch"),
            Encoding::Protobuf
        );
        assert_eq!(of("application/json"), Encoding::Json);
        assert_eq!(of("text/html; charset=utf-8"), Encoding::Json);
        assert_eq!(Encoding::of(&HeaderMap::new()), Encoding::Json);
    }

    #[test]
    fn a_refusal_of_protobuf_is_believed_once() {
        let negotiation = Negotiation::new(Encoding::Protobuf);
        assert_eq!(negotiation.accept(), PROTOBUF_OR_JSON);
        assert!(!negotiation.is_refused(StatusCode::FORBIDDEN));
        assert!(negotiation.is_refused(StatusCode::NOT_ACCEPTABLE));
        assert_eq!(negotiation.accept(), JSON);
        assert!(!negotiation.is_refused(StatusCode::NOT_ACCEPTABLE));
        let negotiation = Negotiation::new(Encoding::Json);
        assert!(!negotiation.is_refused(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
}
