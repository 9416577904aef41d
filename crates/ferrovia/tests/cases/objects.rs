//! The objects of a case, step by step.

use std::collections::BTreeMap;

use ferrovia::source::manifest::decode::{Format, decode};
use ferrovia_core::store::Event;
use ferrovia_core::wire::{Kind, Object};

/// The node under test, for cases without a Node.
const NODE: &str = r"
kind: Node
metadata: { name: node-1 }
status:
  addresses:
  - { type: InternalIP, address: 198.51.100.10 }
  - { type: InternalIP, address: '2001:db8:51::10' }
";

/// The current objects of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    all: BTreeMap<(Kind, String, String), Object>,
}

impl Objects {
    /// The events of an empty cluster: a Node, and the end of every initial list.
    pub(crate) fn start(&mut self) -> Vec<Event> {
        let mut events = self.step(NODE, 0).expect("the node is well-formed");
        events.extend(Kind::ALL.map(Event::Listed));
        events
    }

    /// Applies a step's manifests; returns their events. A line `# delete Kind namespace/name` deletes.
    pub(crate) fn step(&mut self, yaml: &str, first_line: usize) -> Result<Vec<Event>, String> {
        let decoded = decode(yaml.as_bytes(), Format::Yaml)
            .map_err(|error| format!("manifests beginning at line {first_line}: {error}"))?;
        let deleted = yaml
            .lines()
            .filter_map(|line| line.strip_prefix("# delete "));
        let mut events: Vec<Event> = deleted
            .map(|what| self.delete(what))
            .collect::<Result<_, _>>()?;
        let applied = decoded
            .into_iter()
            .map(|decoded| self.apply(decoded.object));
        events.extend(applied);
        Ok(events)
    }

    /// Applies an object; returns its event.
    pub(crate) fn apply(&mut self, object: Box<Object>) -> Event {
        let metadata = object.metadata();
        let key = (
            object.kind(),
            metadata.namespace.clone(),
            metadata.name.clone(),
        );
        self.all.insert(key, Object::clone(&object));
        Event::Applied(object)
    }

    fn delete(&mut self, what: &str) -> Result<Event, String> {
        let problem = || {
            format!("cannot delete {what:?}: expected `Kind namespace/name` of an existing object")
        };
        let (kind, name) = what.trim().split_once(' ').ok_or_else(problem)?;
        let kind = Kind::ALL
            .into_iter()
            .find(|k| k.name() == kind)
            .ok_or_else(problem)?;
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let found = self.all.keys().find(|(k, ns, n)| {
            *k == kind
                && n == name
                && (ns == namespace || (ns.is_empty() && namespace == "default"))
        });
        let key = found.cloned().ok_or_else(problem)?;
        self.all.remove(&key);
        Ok(Event::Deleted {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// The events that create all objects.
    pub(crate) fn replay(&self) -> Vec<Event> {
        let applied = self
            .all
            .values()
            .map(|object| Event::Applied(Box::new(object.clone())));
        applied.chain(Kind::ALL.map(Event::Listed)).collect()
    }
}
