//! The seeds are what they should be: a corpus that no decoder understands would try nothing.

use std::fs;

use ferrovia_core::family::Family;
use ferrovia_netlink::{Refusal, messages};

use crate::hostile::CORPUS;
use crate::nft::decode;

#[test]
fn seeds_are_understood() {
    let read = |name: &str| fs::read(format!("{CORPUS}/{name}")).unwrap();
    let rules = read("rules");
    let decoded: Vec<_> = messages(&rules)
        .filter_map(|message| decode::rule(&message, Family::V4))
        .collect();
    assert!(decoded.len() > 10 && decoded.iter().all(|(_, code)| !code.is_empty()));
    let mut elements = decode::RawElements::default();
    messages(&read("elements-endpoints"))
        .for_each(|message| decode::elements(&mut elements, &message));
    let list = elements.list;
    assert!(list.len() > 10 && list.iter().all(|element| element.rest.data.is_some()));
    let refusal = read("refusal");
    let refusal = Refusal::read(&messages(&refusal).next().unwrap())
        .unwrap()
        .unwrap_err();
    assert_eq!((refusal.errno, refusal.offset), (libc::ENOENT, Some(20)));
}
