//! Whatever a file holds, decoding it answers.
#![no_main]

use ferrovia::source::manifest::decode::{Format, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = decode(bytes, Format::Yaml);
    let _ = decode(bytes, Format::Json);
});
