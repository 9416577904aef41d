//! What we would never write is noticed, no matter who wrote it and wherever in our table it is.

use ferrovia_core::family::Family;
use ferrovia_host::nft::Nft;

use crate::sample;
use crate::support::{apply, in_namespace, load, observe};

const V4: Family = Family::V4;

/// What is found odd after the tool added this to a table of ours.
fn oddities_after(text: &'static str) -> Vec<String> {
    in_namespace(move || {
        let mut nft = Nft::open().unwrap();
        apply(&mut nft, V4, sample::frame(V4));
        apply(&mut nft, V4, sample::elements(V4));
        assert_eq!(observe(&mut nft, V4).oddities, [""; 0], "nothing added yet");
        load(text);
        observe(&mut nft, V4).oddities
    })
}

#[test]
fn a_dormant_table_is_odd() {
    let found = oddities_after("add table ip ferrovia { flags dormant; }");
    assert_eq!(found, ["table is dormant"]);
}

#[test]
fn a_chain_that_drops_by_default_is_odd() {
    let found = oddities_after(
        "add chain ip ferrovia filter-forward \
         { type filter hook forward priority -110; policy drop; }",
    );
    assert_eq!(found, ["chain filter-forward has policy drop"]);
}

#[test]
fn a_catch_all_element_is_odd() {
    let found = oddities_after("add element ip ferrovia rejected { * }");
    assert_eq!(found, ["set rejected has a catch-all element"]);
    // In an interval set it lies beside the ranges, not among them.
    let found = oddities_after("add element ip ferrovia allowed-sources { * }");
    assert_eq!(found, ["set allowed-sources has a catch-all element"]);
}

#[test]
fn a_set_with_properties_we_never_give_is_odd() {
    for (properties, oddity) in [
        ("size 10;", "set odd has a size"),
        ("flags timeout;", "set odd has a timeout"),
        ("timeout 1h;", "set odd has a timeout"),
        (
            "flags dynamic, timeout; timeout 1h;",
            "set odd has a timeout",
        ),
        ("flags constant;", "set odd is constant"),
        (
            "size 10; flags dynamic;",
            "set odd is dynamic without timeouts",
        ),
        ("limit rate 1/second;", "set odd has a limit"),
    ] {
        let text = format!("add set ip ferrovia odd {{ type ipv4_addr; {properties} }}");
        let found = oddities_after(text.leak());
        assert_eq!(found, [oddity], "{properties}");
    }
}

#[test]
fn a_map_to_named_objects_is_odd() {
    let found = oddities_after("add map ip ferrovia odd { type ipv4_addr : counter; }");
    assert_eq!(found, ["set odd has foreign flags 0x40"]);
}

/// The tool gives an element instructions only if its set reports it, which is odd already; the kernel does not mind.
#[test]
fn an_element_that_does_more_than_count_is_odd() {
    let found = oddities_after(
        "add set ip ferrovia odd { type ipv4_addr; counter limit rate 1/second; }\n\
         add element ip ferrovia odd { 192.0.2.1, 192.0.2.2 }\n",
    );
    assert_eq!(
        found,
        [
            "set odd has foreign flags 0x100",
            "set odd has a limit",
            "set odd has an element with a limit"
        ]
    );
}

#[test]
fn named_objects_are_odd() {
    let found = oddities_after(
        "add counter ip ferrovia hits\n\
         add quota ip ferrovia enough { over 1 mbytes }\n\
         add table ip other\n\
         add counter ip other theirs\n",
    );
    assert_eq!(
        found,
        [
            "table has a named object hits",
            "table has a named object enough"
        ]
    );
}

#[test]
fn reports_all_oddities() {
    let found = oddities_after(
        "add table ip ferrovia { flags dormant; }\n\
         add counter ip ferrovia hits\n\
         add element ip ferrovia rejected { * }\n",
    );
    assert_eq!(
        found,
        [
            "table is dormant",
            "set rejected has a catch-all element",
            "table has a named object hits"
        ]
    );
}

#[test]
fn what_is_odd_elsewhere_is_no_concern_of_ours() {
    let found = oddities_after(
        "add table ip6 ferrovia { flags dormant; }\n\
         add counter ip6 ferrovia hits\n\
         add table ip other { flags dormant; }\n\
         add chain ip other forward { type filter hook forward priority 0; policy drop; }\n\
         add set ip other odd { type ipv4_addr; size 10; }\n",
    );
    assert_eq!(found, [""; 0]);
}
