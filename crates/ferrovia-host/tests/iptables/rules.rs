//! Every shape of a service has kube-proxy's rules, written at once or step by step.

use ferrovia_core::family::Family;
use ferrovia_core::plan::ObservedPolicy;
use ferrovia_lab::kube_proxy_rules::{self, ServiceShape};

use crate::support::{BACKENDS, Node, in_namespace, restore, shape};

/// What a running kube-proxy gives its restoring tool for the shape S9, in its own spelling, with a chain of an endpoint that is gone.
const KUBE_PROXY: &str = include_str!("kube-proxy.restore");

/// Says where the kernel differs from what is expected of a shape.
fn difference(node: &mut Node, shape: &ServiceShape) -> Option<String> {
    let (mut found, expected) = (kube_proxy_rules::rules(&node.save()), shape.expected());
    // The chains of a service that is only there to be many.
    found.retain(|chain, _| expected.contains_key(chain) || !chain.1.starts_with("KUBE-S"));
    kube_proxy_rules::difference(&found, &expected)
}

#[test]
fn every_shape_has_kube_proxys_rules_in_the_kernel() {
    for backend in BACKENDS {
        for shape in kube_proxy_rules::all() {
            in_namespace(|| {
                let mut node = Node::written(&shape, backend);
                if let Some(difference) = difference(&mut node, &shape) {
                    panic!("{backend} {}: {difference}", shape.name);
                }
                node.restart();
                let plan = node.full(ObservedPolicy::Adopt).unwrap();
                assert!(plan.is_empty(), "{backend} {}: {plan}", shape.name);
            });
        }
    }
}

#[test]
fn step_by_step_ends_where_one_write_does() {
    let alike = |shape: &ServiceShape| {
        let first = &kube_proxy_rules::all()[0];
        shape.family == Family::V4
            && shape.options == first.options
            && shape.settings.masquerade_all == first.settings.masquerade_all
            && format!("{:?}", shape.settings) == format!("{:?}", first.settings)
    };
    let shapes: Vec<ServiceShape> = kube_proxy_rules::all().into_iter().filter(alike).collect();
    assert!(shapes.len() > 10);
    for backend in BACKENDS {
        in_namespace(|| {
            let mut node = Node::written(&shapes[0], backend);
            let mut at = 1usize;
            for _ in 0..40 {
                // A walk that visits all of them, in an order that has no system.
                at = (at * 1_103_515_245 + 12_345) % (1 << 31);
                let shape = &shapes[(at >> 8) % shapes.len()];
                let plan = node.change(shape.desired()).unwrap();
                if let Some(difference) = difference(&mut node, shape) {
                    panic!("{backend} {}: {difference}\n{plan}", shape.name);
                }
            }
            node.restart();
            let plan = node.full(ObservedPolicy::Adopt).unwrap();
            assert!(plan.is_empty(), "{backend}: {plan}");
        });
    }
}

#[test]
fn a_kube_proxys_rules_are_taken_over_in_place() {
    for backend in BACKENDS {
        in_namespace(|| {
            let mut node = Node::new(&shape("S9"), backend);
            // Makes the counters the rules name.
            node.save();
            restore(Family::V4, backend, KUBE_PROXY);
            let plan = node.full(ObservedPolicy::Adopt).unwrap().to_string();
            let canary = ":KUBE-PROXY-CANARY - [0:0]";
            assert_eq!(
                plan,
                format!(
                    "*mangle\n{canary}\nCOMMIT\n*filter\n{canary}\nCOMMIT\n*nat\n{canary}\n\
                    :KUBE-SEP-OLDOLDOLDOLDOLD2 - [0:0]\n-X KUBE-SEP-OLDOLDOLDOLDOLD2\nCOMMIT\n"
                ),
                "{backend}"
            );
        });
    }
}
