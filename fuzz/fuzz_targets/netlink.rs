//! Whatever the kernel sends, decoding it answers.
#![no_main]

use ferrovia_host::hostile::decode_all;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| decode_all(bytes));
