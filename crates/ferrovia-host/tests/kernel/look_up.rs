//! Single elements, asked for by their keys.

use std::slice;

use ferrovia_core::dialect::nft::{ElementKey, KeyBuilder};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_host::nft::Nft;

use crate::sample::{self, Sets};
use crate::support::{TABLE, apply, drop_privileges, in_namespace, observe};

#[test]
fn what_a_full_reading_finds_is_found_by_key() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        for family in Family::ALL {
            apply(&mut nft, family, sample::frame(family));
            apply(&mut nft, family, sample::elements(family));
            let observed = observe(&mut nft, family);
            let sets = Sets::of(family).all().into_iter();
            for spec in sets.filter(|set| !set.interval && set.dynamic.is_none()) {
                let whole = &observed.sets[spec.name].elements;
                assert!(!whole.is_empty(), "{} has no elements", spec.name);
                let keys: Vec<ElementKey> = whole.keys().cloned().collect();
                let found = nft.look_up(family, TABLE, &spec, &keys).unwrap();
                assert!(found.iter().map(|(key, _)| key).eq(&keys), "{found:?}");
                assert!(found.iter().all(|(key, element)| whole[key] == *element));
            }
        }
    });
}

#[test]
fn answers_end_with_the_first_that_is_missing() {
    in_namespace(|| {
        let family = Family::V4;
        let mut nft = Nft::open().unwrap();
        let services = Sets::of(family).services;
        let key = |n| {
            let key = KeyBuilder::new().ip(sample::service_ip(family, n));
            key.proto(Protocol::Tcp).port(80).build()
        };
        let mut found = |table, keys: &[ElementKey]| {
            let found = nft.look_up(family, table, &services, keys).unwrap();
            found.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(found(TABLE, &[key(1)]), [], "there is no table");
        apply(&mut Nft::open().unwrap(), family, sample::frame(family));
        assert_eq!(found(TABLE, &[key(1)]), [], "it is empty");
        apply(&mut Nft::open().unwrap(), family, sample::elements(family));
        let [first, missing] = [key(1), key(9999)];
        assert_eq!(
            found(TABLE, &[first.clone(), missing.clone(), first.clone()]),
            slice::from_ref(&first)
        );
        assert_eq!(found(TABLE, &[missing, first.clone()]), []);
        assert_eq!(found("another", &[first]), []);
    });
}

#[test]
fn look_up_without_privileges_is_an_error() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        drop_privileges();
        let services = Sets::of(Family::V4).services;
        let key = KeyBuilder::new().build();
        let refused = nft.look_up(Family::V4, TABLE, &services, &[key]);
        let words = refused.unwrap_err().to_string();
        assert!(
            words.contains("look up elements") && words.contains("not permitted"),
            "{words}"
        );
    });
}
