//! The legacy Endpoints object, read as slices.

use std::collections::HashMap;

use super::{
    EndpointSlice, HEADLESS_LABEL, SliceEndpoint, SliceKey, SlicePort, endpoint_ip, node_name,
    ports, usable, weight,
};
use crate::family::{Family, PerFamily};
use crate::model::name::checked_names;
use crate::model::{ServiceKey, Unusable, Warning, Warnings};
use crate::wire::{self, Kind};

/// What endpoints must have in common to be in one slice.
type PortGroup = (Family, Box<[SlicePort]>);

/// Reads a legacy object as slices: one for each family and distinct list of ports, in the order in which they come up.
///
/// They all carry the object's own name, since they are never stored beside real slices.
pub(crate) fn mirror(
    object: &wire::Endpoints,
) -> Result<(Vec<EndpointSlice>, Vec<Warning>), Unusable> {
    let metadata = &object.metadata;
    if metadata.labels.contains_key(HEADLESS_LABEL) {
        return Err(Unusable::NotOurs("of a headless Service"));
    }
    let (namespace, name) = checked_names(metadata)?;
    let key = SliceKey::new(namespace, name);
    let mut warnings = Warnings::new(Kind::Endpoints, key.as_str());
    let weight = weight(metadata, &mut warnings);
    let service = ServiceKey::from_checked_names(namespace, name);
    let slice = |((family, ports), endpoints): (PortGroup, Vec<SliceEndpoint>)| EndpointSlice {
        key: key.clone(),
        service: service.clone(),
        family,
        ports,
        endpoints: endpoints.into(),
        weight,
        mirrored: true,
    };
    let groups = groups(&object.subsets, &mut warnings);
    let slices = groups.into_iter().map(slice).collect();
    Ok((slices, warnings.into_vec()))
}

/// The endpoints of all subsets, sorted into groups.
fn groups(
    subsets: &[wire::EndpointSubset],
    warnings: &mut Warnings<'_>,
) -> Vec<(PortGroup, Vec<SliceEndpoint>)> {
    let mut groups: Vec<(PortGroup, Vec<SliceEndpoint>)> = Vec::new();
    let mut places: HashMap<PortGroup, usize> = HashMap::new();
    for (i, subset) in subsets.iter().enumerate() {
        let ports = ports(&format!("subsets[{i}].ports"), &subset.ports, warnings);
        let mut endpoints = endpoints(i, subset, warnings);
        for family in Family::ALL {
            let endpoints = std::mem::take(&mut endpoints[family]);
            if endpoints.is_empty() {
                continue;
            }
            let group = (family, ports.clone());
            match places.get(&group) {
                Some(place) => groups[*place].1.extend(endpoints),
                None => {
                    places.insert(group.clone(), groups.len());
                    groups.push((group, endpoints));
                }
            }
        }
    }
    groups
}

/// The usable endpoints of one subset, ready ones first, by family.
fn endpoints(
    i: usize,
    subset: &wire::EndpointSubset,
    warnings: &mut Warnings<'_>,
) -> PerFamily<Vec<SliceEndpoint>> {
    let lists = [
        ("addresses", &subset.addresses, true),
        ("notReadyAddresses", &subset.not_ready_addresses, false),
    ];
    let mut found = PerFamily::<Vec<SliceEndpoint>>::default();
    for (list, addresses, ready) in lists {
        for (j, address) in addresses.iter().enumerate() {
            let field = |name: &str| format!("subsets[{i}].{list}[{j}].{name}");
            let Some(ip) = usable(endpoint_ip(&address.ip), || field("ip"), warnings) else {
                continue;
            };
            let node = address.node_name.as_deref();
            found[Family::of(ip)].push(SliceEndpoint {
                ip,
                ready,
                serving: true,
                terminating: false,
                node: node_name(|| field("nodeName"), node, warnings),
                hints: None,
                pod: address.pod,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(subsets: Value) -> (Vec<EndpointSlice>, Vec<Warning>) {
        let mut object = json!({"metadata": {"name": "web", "namespace": "ns"}});
        object["subsets"] = subsets;
        mirror(&serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn a_slice_is_made_for_each_family_and_list_of_ports() {
        let (slices, warnings) = read(json!([
            {"addresses": [{"ip": "10.1.0.1", "nodeName": "n1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}]},
            {"addresses": [{"ip": "10.1.0.2"}], "notReadyAddresses": [{"ip": "10.1.0.3"}], "ports": [{"port": 80}]},
            {"addresses": [{"ip": "10.1.0.1"}], "ports": [{"name": "x", "port": 81}]},
        ]));
        let shown: Vec<_> = slices
            .iter()
            .map(|slice| {
                let ready: Vec<bool> = slice.endpoints.iter().map(|e| e.ready).collect();
                (slice.family, slice.ports[0].port, ready)
            })
            .collect();
        assert_eq!(
            shown,
            [
                (Family::V4, 80, vec![true, true, false]),
                (Family::V6, 80, vec![true]),
                (Family::V4, 81, vec![true]),
            ]
        );
        assert!(slices.iter().all(|slice| slice.mirrored));
        assert_eq!(slices[2].service.as_str(), "ns/web");
        assert_eq!(slices[0].endpoints[0].node.as_deref(), Some("n1"));
        assert_eq!(warnings, []);
    }

    /// The author knows the object, not the slices made of it.
    #[test]
    fn problems_are_named_by_the_objects_own_fields() {
        let (slices, warnings) = read(json!([
            {"addresses": [{"ip": "10.1.0.1"}], "ports": [{"port": 80}]},
            {
                "addresses": [{"ip": "fd00::1"}, {"ip": "127.0.0.1"}],
                "notReadyAddresses": [{"ip": "10.1.0.2", "nodeName": "N"}, {"ip": "::ffff:10.1.0.3"}],
                "ports": [{"port": 80}, {"name": "x", "port": 0}],
            },
        ]));
        let fields: Vec<_> = warnings.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "subsets[1].ports[1].port",
                "subsets[1].addresses[1].ip",
                "subsets[1].notReadyAddresses[0].nodeName",
                "subsets[1].notReadyAddresses[1].ip",
            ]
        );
        assert_eq!(warnings[0].object, "Endpoints ns/web");
        assert_eq!(slices.len(), 2);
    }

    #[test]
    fn a_flood_of_problems_is_cut_short() {
        let subset = |i: u16| json!({"addresses": [{"ip": "bogus"}], "ports": [{"port": i}]});
        let (slices, warnings) = read((1..=1000).map(subset).collect());
        assert_eq!((slices.len(), warnings.len()), (0, 17));
    }
}
