//! How long the first write waits for our Node object. Pure: it is told the time.
//!
//! The Node says on which addresses node ports answer and, where pods are told by the node's range, which packets are theirs. Written
//! before that is known, the rules would be too wide for a moment. A Node that never comes must not keep the node without services, so
//! the wait has an end; only where nothing can be right without it, it ends in failure.

use std::time::{Duration, Instant};

use ferrovia_core::model::node::Node;
use ferrovia_core::store::Store;
use ferrovia_core::wire::Kind;

/// How long to wait for the Node and its address.
const FOR_ADDRESS: Duration = Duration::from_secs(30);
/// How long to wait for its pod range.
const FOR_POD_CIDR: Duration = Duration::from_secs(5 * 60);

/// What must be known of the Node before anything is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeNeed {
    /// Nothing: there may be no Node at all.
    #[default]
    Nothing,
    /// Its address, but not at any price.
    Address,
    /// Its address, and its pod range at any price.
    PodCidr,
}

/// Whether the first write may be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It may.
    Over,
    /// Not before our Node changes or this time has come; for ever if there is none.
    Until(Option<Instant>),
    /// What cannot be done without never came.
    Failed(String),
}

/// The wait for the Node.
#[derive(Debug)]
pub(super) struct NodeWait {
    need: NodeNeed,
    /// When the API server first answered whether there is such a Node.
    began: Option<Instant>,
    has_told: bool,
    is_over: bool,
}

impl NodeWait {
    pub(super) fn new(need: NodeNeed) -> Self {
        Self {
            need,
            began: None,
            has_told: false,
            is_over: need == NodeNeed::Nothing,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Looks whether what is needed has come.
    pub(super) fn look(&mut self, store: &Store, now: Instant) -> Wait {
        if self.is_over {
            return Wait::Over;
        }
        if !store.is_listed(Kind::Node) {
            return Wait::Until(None);
        }
        let began = *self.began.get_or_insert(now);
        let node = store.node();
        let is_addressed = node.is_some_and(|node| !node.addresses.is_empty());
        if !is_addressed && now < began + FOR_ADDRESS {
            return Wait::Until(Some(began + FOR_ADDRESS));
        }
        if !is_addressed && !std::mem::replace(&mut self.has_told, true) {
            tracing::error!("{}", without_address(node));
        }
        if self.need == NodeNeed::PodCidr && node.is_none_or(|node| node.pod_cidrs.is_empty()) {
            let limit = began + FOR_POD_CIDR;
            if now < limit {
                return Wait::Until(Some(limit));
            }
            return Wait::Failed(without_pod_cidr(node));
        }
        self.is_over = true;
        Wait::Over
    }
}

fn without_address(node: Option<&Node>) -> &'static str {
    match node {
        None => {
            "the API server knows no Node of this name; going on without its addresses. Is --hostname-override right?"
        }
        Some(_) => "our Node has no address; going on without",
    }
}

fn without_pod_cidr(node: Option<&Node>) -> String {
    let what = match node {
        None => "the API server knows no Node of this name",
        Some(_) => "no pod range was given to our Node",
    };
    format!("{what}, and --detect-local-mode=NodeCIDR cannot do without (waited for 5 minutes)")
}

#[cfg(test)]
mod tests {
    use ferrovia_core::store::Event;
    use ferrovia_core::wire::{self, Object};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn listed() -> Store {
        let mut store = Store::new("n1");
        store.handle(Event::Listed(Kind::Node));
        store
    }

    fn see(store: &mut Store, addresses: &[&str], pod_cidrs: &[&str]) {
        let address = |text: &&str| wire::NodeAddress {
            kind: "InternalIP".into(),
            address: (*text).into(),
        };
        let mut node = wire::Node::default();
        node.metadata.name = "n1".into();
        node.status.addresses = addresses.iter().map(address).collect();
        node.spec.pod_cidrs = pod_cidrs.iter().map(|net| (*net).into()).collect();
        store.handle(Event::Applied(Box::new(Object::Node(node))));
    }

    #[test]
    fn nothing_is_waited_for_where_there_may_be_no_node() {
        let mut wait = NodeWait::new(NodeNeed::Nothing);
        assert_eq!(wait.look(&Store::new("n1"), Instant::now()), Wait::Over);
    }

    #[test]
    fn the_clock_starts_when_the_api_server_has_answered() {
        let (mut wait, now) = (NodeWait::new(NodeNeed::Address), Instant::now());
        assert_eq!(wait.look(&Store::new("n1"), now), Wait::Until(None));
        let answered = now + 3600 * SECOND;
        assert_eq!(
            wait.look(&listed(), answered),
            Wait::Until(Some(answered + 30 * SECOND))
        );
    }

    #[test]
    fn an_address_ends_the_wait_and_so_does_its_end() {
        let now = Instant::now();
        let mut store = listed();
        let mut wait = NodeWait::new(NodeNeed::Address);
        see(&mut store, &[], &[]);
        assert_ne!(wait.look(&store, now), Wait::Over);
        assert_eq!(wait.look(&store, now + 30 * SECOND), Wait::Over);

        let mut wait = NodeWait::new(NodeNeed::Address);
        see(&mut store, &["10.0.0.1"], &[]);
        assert_eq!(wait.look(&store, now), Wait::Over);
    }

    #[test]
    fn a_pod_range_is_waited_for_longer_and_its_lack_is_a_failure() {
        let now = Instant::now();
        let mut store = listed();
        let mut wait = NodeWait::new(NodeNeed::PodCidr);
        see(&mut store, &["10.0.0.1"], &[]);
        assert_eq!(
            wait.look(&store, now),
            Wait::Until(Some(now + 300 * SECOND))
        );
        let Wait::Failed(why) = wait.look(&store, now + 300 * SECOND) else {
            panic!("not failed");
        };
        assert!(why.contains("no pod range"), "{why}");
        see(&mut store, &["10.0.0.1"], &["10.1.0.0/24"]);
        assert_eq!(wait.look(&store, now + 299 * SECOND), Wait::Over);
        see(&mut store, &[], &[]);
        assert_eq!(wait.look(&store, now), Wait::Over, "it stays over");
    }
}
