//! Answers that no API server would give, whole and cut anywhere: whatever comes is told or refused in few words, and nothing panics.

use std::path::Path;

use ferrovia_core::wire::Kind;
use ferrovia_lab::fuzz::FuzzTarget;
use ferrovia_lab::random::Random;

use super::decode::{self, Fault, News, Status};
use super::items::{Items, Part};
use super::lines::{Line, Lines};
use super::protobuf::{self, Frame, Frames, List};

/// Short enough for a mutated input to be too long.
const LIMIT: usize = 700;

/// The longest that is ever said of an answer.
const LONGEST_WORDS: usize = 4 * 302;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/api");

const PROTOBUF_CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/api-protobuf");

#[test]
fn hostile_answers_are_told_or_refused() {
    let target = FuzzTarget {
        name: "API answers",
        corpus: Path::new(CORPUS),
        pieces: &[
            b"{",
            b"}",
            b"[",
            b"]",
            b"\"",
            b"\\",
            b"\\ud800",
            b"\n",
            b":",
            b",",
            b"null",
            b"1e999",
            b"-1",
            b"\"items\":[",
            b"\"metadata\":{",
            b"\"object\":",
            b"\xff",
        ],
        longest: 16 * 1024,
    };
    target.run(|_, bytes| {
        let mut random = Random::new(bytes.len() as u64);
        assert_eq!(watched(&[bytes]), watched(&cut(bytes, &mut random)));
        assert_eq!(listed(&[bytes]), listed(&cut(bytes, &mut random)));
        words(&Status::of_answer(500, bytes).message);
    });
}

#[test]
fn hostile_answers_in_protobuf_are_read_or_refused() {
    let target = FuzzTarget {
        name: "API answers in protobuf",
        corpus: Path::new(PROTOBUF_CORPUS),
        pieces: &[
            b"k8s\0",
            b"\0\0\0\0",
            b"\0\0\x02\x8f",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x80",
            b"\x0a\x00",
            b"\x12\x00",
            b"\x0b",
            b"\x0d",
            b"\x09",
            b"\x05ADDED",
        ],
        longest: 16 * 1024,
    };
    target.run(|_, bytes| {
        let mut random = Random::new(bytes.len() as u64);
        assert_eq!(framed(&[bytes]), framed(&cut(bytes, &mut random)));
        assert_eq!(items(&[bytes]), items(&cut(bytes, &mut random)));
        words(&Status::of_answer(500, bytes).message);
        for kind in Kind::ALL {
            let read = protobuf::object(kind, bytes);
            drop(read.map_err(|fault| check(&fault)));
        }
    });
}

/// What becomes of a watch in protobuf that sends this.
fn framed(pieces: &[&[u8]]) -> (Vec<String>, bool) {
    let mut frames = Frames::new(LIMIT);
    let mut read = Vec::new();
    for piece in pieces {
        let fed = frames.feed(piece, &mut |frame| match frame {
            Frame::Whole(frame) => {
                for kind in Kind::ALL {
                    let news = protobuf::news(kind, frame);
                    read.push(format!("{}", news.map_err(|fault| check(&fault)).is_ok()));
                }
            }
            Frame::TooLong(beginning) => {
                check(&protobuf::frame_too_long(beginning));
                read.push("too long".to_owned());
            }
        });
        if fed.is_err() {
            read.push("no watch".to_owned());
            return (read, true);
        }
    }
    (read, frames.is_half())
}

/// What becomes of a list in protobuf like this, and whether it ended.
fn items(pieces: &[&[u8]]) -> (Vec<String>, bool) {
    let mut list = List::new(LIMIT);
    let mut read = Vec::new();
    for piece in pieces {
        let fed = list.feed(piece, &mut |part| match part {
            Part::Item(item) => {
                let object = |kind| protobuf::object(kind, item).map_err(|fault| check(&fault));
                let is_one = Kind::ALL.into_iter().any(|kind| object(kind).is_ok());
                read.push(format!("item {is_one}"));
            }
            Part::TooLong(beginning) => {
                check(&protobuf::item_too_long(beginning));
                read.push("too long".to_owned());
            }
            Part::Metadata(metadata) => {
                let metadata = protobuf::list_metadata(metadata);
                let is_one = metadata.map_err(|fault| check(&fault)).is_ok();
                read.push(format!("metadata {is_one}"));
            }
        });
        if fed.is_err() {
            read.push("no list".to_owned());
            break;
        }
    }
    (read, list.is_done())
}

#[test]
fn seeds_are_understood() {
    let read = |name: &str| std::fs::read(format!("{CORPUS}/{name}")).unwrap();
    let line = read("watch-kube-dns.json");
    let first = line.strip_suffix(b"\n").unwrap();
    assert!(matches!(
        decode::news(Kind::Service, first),
        Ok(News::Applied(_))
    ));
    let (told, done) = listed(&[&read("list-cidrs.json")]);
    assert!(done && told.contains(&"item true".to_owned()), "{told:?}");
}

/// The bytes in pieces, as a network may deliver them.
fn cut<'a>(mut bytes: &'a [u8], random: &mut Random) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(1 + random.below(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// What is told of a watch that sends this.
fn watched(pieces: &[&[u8]]) -> (Vec<String>, bool) {
    let mut lines = Lines::new(LIMIT);
    let mut told = Vec::new();
    for piece in pieces {
        lines.feed(piece, &mut |line| match line {
            Line::Whole(line) => {
                for kind in Kind::ALL {
                    let news = decode::news(kind, line);
                    told.push(format!("{}", news.map_err(|fault| check(&fault)).is_ok()));
                }
            }
            Line::TooLong(beginning) => {
                check(&decode::too_long(beginning));
                told.push("too long".to_owned());
            }
        });
    }
    (told, lines.is_half())
}

/// What is told of a list like this, and whether it ended.
fn listed(pieces: &[&[u8]]) -> (Vec<String>, bool) {
    let mut items = Items::new(LIMIT);
    let mut told = Vec::new();
    for piece in pieces {
        let fed = items.feed(piece, &mut |part| match part {
            Part::Item(item) => {
                let read = |kind| decode::object(kind, item).map_err(|fault| check(&fault));
                let is_one = Kind::ALL.into_iter().any(|kind| read(kind).is_ok());
                told.push(format!("item {is_one}"));
            }
            Part::TooLong(beginning) => {
                check(&decode::too_long(beginning));
                told.push("too long".to_owned());
            }
            Part::Metadata(metadata) => {
                let read = decode::list_metadata(metadata);
                told.push(format!(
                    "metadata {}",
                    read.map_err(|fault| check(&fault)).is_ok()
                ));
            }
        });
        if fed.is_err() {
            told.push("no list".to_owned());
            break;
        }
    }
    (told, items.is_done())
}

fn check(fault: &Fault) {
    words(&fault.what);
}

/// Goes into a log: it must not be long, nor move a terminal's cursor.
fn words(text: &str) {
    assert!(text.len() <= LONGEST_WORDS, "{} bytes", text.len());
    assert!(!text.contains(char::is_control), "{text:?}");
}
