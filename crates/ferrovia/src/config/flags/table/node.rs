//! Flags for what is known of the cluster and of this node.

use super::super::values::{any, int32, ip, list};
use super::Kind::{List, Value};
use super::{Flag, flag, put, put_some, text};

/// Where objects come from.
pub(super) const SOURCES: &[Flag] = &[
    flag(
        "manifests",
        Value("DIR"),
        "",
        "Take objects from the YAML and JSON files of this folder instead of an API server, and follow them as they change",
        |t, v| text(&mut t.document.ferrovia.manifests, v),
    )
    .beats_file(),
    flag(
        "kubeconfig",
        Value("FILE"),
        "",
        "How to reach the API server [default: as a pod does, by its service account]",
        |t, v| text(&mut t.document.client_connection.kubeconfig, v),
    ),
    flag(
        "master",
        Value("URL"),
        "",
        "Address of the API server, instead of the kubeconfig's",
        |t, v| text(&mut t.master, v),
    )
    .beats_file(),
    flag(
        "kube-api-content-type",
        Value("TYPE"),
        "application/vnd.kubernetes.protobuf",
        "Format to ask the API server for",
        |t, v| text(&mut t.document.client_connection.content_type, v),
    ),
    flag(
        "kube-api-qps",
        Value("NUMBER"),
        "5",
        "Requests to the API server a second; negative for no limit",
        |t, v| put(&mut t.document.client_connection.qps, any(v)),
    ),
    flag(
        "kube-api-burst",
        Value("NUMBER"),
        "10",
        "Requests to the API server at once before that limit holds",
        |t, v| put(&mut t.document.client_connection.burst, int32(v)),
    ),
    flag(
        "config-sync-period",
        Value("TIME"),
        "15m0s",
        "Without effect, accepted because kube-proxy has it",
        |t, v| put(&mut t.document.config_sync_period, any(v)),
    ),
];

/// This node.
pub(super) const NODE: &[Flag] = &[
    flag(
        "hostname-override",
        Value("NAME"),
        "",
        "Name of this node: endpoints with this nodeName are local [default: the host name]",
        |t, v| text(&mut t.hostname_override, v),
    )
    .beats_file()
    .aliases(&["node-name"]),
    flag(
        "bind-address",
        Value("IP"),
        "0.0.0.0",
        "This node's address, instead of the Node object's; nothing is bound to it",
        |t, v| match v {
            // As kube-proxy has it: an empty address changes nothing.
            "" => Ok(()),
            _ => ip(v).and_then(|_| text(&mut t.document.bind_address, v)),
        },
    ),
    flag(
        "detect-local-mode",
        Value("MODE"),
        "ClusterCIDR",
        "How to tell traffic of this node's pods: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
        |t, v| text(&mut t.document.detect_local_mode, v),
    ),
    flag(
        "cluster-cidr",
        Value("CIDR[,CIDR]"),
        "",
        "Ranges of pod addresses, one of each family (for ClusterCIDR)",
        |t, v| text(&mut t.document.cluster_cidr, v),
    ),
    flag(
        "pod-bridge-interface",
        Value("NAME"),
        "",
        "Bridge the pods are attached to (for BridgeInterface)",
        |t, v| text(&mut t.document.detect_local.bridge_interface, v),
    ),
    flag(
        "pod-interface-name-prefix",
        Value("PREFIX"),
        "",
        "What the names of the pods' interfaces begin with (for InterfaceNamePrefix)",
        |t, v| text(&mut t.document.detect_local.interface_name_prefix, v),
    ),
    flag(
        "nodeport-addresses",
        List("CIDR[,CIDR]|primary|all"),
        "",
        "Where node ports answer: `primary` (the node's addresses; so without this flag in nftables mode and with --manifests), `all`, or \
         ranges that local addresses must be in",
        |t, v| {
            let addresses = t.document.node_port_addresses.get_or_insert_default();
            addresses.extend(list(v));
            Ok(())
        },
    ),
    flag(
        "oom-score-adj",
        Value("NUMBER"),
        "-999",
        "How unlikely the kernel is to end this process when memory is short, -1000 to 1000",
        |t, v| put_some(&mut t.document.oom_score_adj, int32(v)),
    ),
];
