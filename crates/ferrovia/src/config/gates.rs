//! Feature gates. A few change what we do (`AllowServiceExternalIPs`), serve or log. All others of this Kubernetes version are known by name,
//! because one list of gates is usually given to every component of a cluster, and a misspelt one must not pass unseen.

mod registry;

use std::collections::BTreeMap;

use registry::REGISTRY;

/// How mature a feature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for.
    Alpha,
    /// Well tested.
    Beta,
    /// There to stay.
    Stable,
    /// About to go.
    Deprecated,
}

impl Stage {
    /// As the label of Kubernetes' metric `kubernetes_feature_enabled` spells it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

/// One gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// How mature it is.
    pub stage: Stage,
    /// On or off.
    pub enabled: bool,
}

/// Every gate there is, and whether it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<&'static str, (Gate, bool)>);

/// A gate that cannot be set so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Nobody knows it.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// It can no longer be changed.
    #[error("cannot set feature gate {name} to {wanted}: it is locked to {}", !wanted)]
    Locked {
        /// Its name.
        name: String,
        /// What was asked for.
        wanted: bool,
    },
}

impl Default for FeatureGates {
    fn default() -> Self {
        let gates = REGISTRY.iter().flat_map(|(names, stage, enabled, locked)| {
            names.split_whitespace().map(|name| {
                let gate = Gate {
                    name,
                    stage: *stage,
                    enabled: *enabled,
                };
                (name, (gate, *locked))
            })
        });
        Self(gates.collect())
    }
}

impl FeatureGates {
    /// The defaults with these changes.
    pub fn with(wanted: &BTreeMap<String, bool>) -> Result<Self, Vec<GateError>> {
        let mut gates = Self::default();
        for (group, stage) in [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)] {
            if let Some(enabled) = wanted.get(group) {
                gates.set_all(stage, *enabled);
            }
        }
        // A gate named goes before its group.
        let errors: Vec<_> = wanted
            .iter()
            .filter_map(|(name, enabled)| gates.set(name, *enabled).err())
            .collect();
        if errors.is_empty() {
            Ok(gates)
        } else {
            Err(errors)
        }
    }

    /// Whether a feature is on; one that nobody knows is off.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|(gate, _)| gate.enabled)
    }

    /// Every gate, by name.
    pub fn iter(&self) -> impl Iterator<Item = Gate> + '_ {
        self.0.values().map(|(gate, _)| *gate)
    }

    fn set_all(&mut self, stage: Stage, enabled: bool) {
        for (gate, is_locked) in self.0.values_mut() {
            if gate.stage == stage && !*is_locked {
                gate.enabled = enabled;
            }
        }
    }

    fn set(&mut self, name: &str, enabled: bool) -> Result<(), GateError> {
        match self.0.get_mut(name) {
            None => Err(GateError::Unknown(name.chars().take(100).collect())),
            Some((gate, true)) if gate.enabled != enabled => Err(GateError::Locked {
                name: name.to_owned(),
                wanted: enabled,
            }),
            Some((gate, _)) => {
                gate.enabled = enabled;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(wanted: &[(&str, bool)]) -> Result<FeatureGates, String> {
        let wanted = wanted.iter().map(|(name, on)| ((*name).to_owned(), *on));
        FeatureGates::with(&wanted.collect()).map_err(|errors| errors[0].to_string())
    }

    #[test]
    fn no_name_is_there_twice() {
        let names: usize = REGISTRY
            .iter()
            .map(|(names, ..)| names.split_whitespace().count())
            .sum();
        assert_eq!(FeatureGates::default().iter().count(), names);
        assert!(names > 200, "{names}");
    }

    #[test]
    fn the_defaults_are_those_of_this_version() {
        let gates = FeatureGates::default();
        for on in [
            "AllowServiceExternalIPs",
            "MultiCIDRServiceAllocator",
            "PreferSameTrafficDistribution",
            "NFTablesProxyMode",
            "ComponentFlagz",
            "ComponentStatusz",
            "WatchListClient",
            "InOrderInformers",
            "ContextualLogging",
            "LoggingBetaOptions",
            "WinDSR",
            "WinOverlay",
        ] {
            assert!(gates.is_enabled(on), "{on}");
        }
        for off in [
            "NativeHistograms",
            "LoggingAlphaOptions",
            "AllAlpha",
            "AllBeta",
            "X",
        ] {
            assert!(!gates.is_enabled(off), "{off}");
        }
    }

    #[test]
    fn known_gates_can_be_set_and_unknown_and_locked_ones_not() {
        let gates = with(&[("AllowServiceExternalIPs", false)]).unwrap();
        assert!(!gates.is_enabled("AllowServiceExternalIPs"));
        assert!(with(&[("NFTablesProxyMode", true)]).is_ok());
        assert_eq!(
            with(&[("NFTablesProxyMode", false)]).unwrap_err(),
            "cannot set feature gate NFTablesProxyMode to false: it is locked to true"
        );
        // Gates of earlier versions are as unknown as misspelt ones.
        for gone in [
            "Nonsense",
            "TopologyAwareHints",
            "ServiceTrafficDistribution",
            "KubeProxyDrainingTerminatingNodes",
            "LoadBalancerIPMode",
            "ProxyTerminatingEndpoints",
            "ServiceInternalTrafficPolicy",
            "EndpointSliceTerminatingCondition",
        ] {
            assert_eq!(
                with(&[(gone, true)]).unwrap_err(),
                format!("unrecognized feature gate: {gone}")
            );
        }
    }

    #[test]
    fn groups_set_their_members_unless_these_are_named() {
        let gates = with(&[("AllAlpha", true), ("NativeHistograms", false)]).unwrap();
        assert!(gates.is_enabled("LoggingAlphaOptions"));
        assert!(!gates.is_enabled("NativeHistograms"));
        let gates = with(&[("AllBeta", false)]).unwrap();
        assert!(!gates.is_enabled("ComponentFlagz"));
        assert!(gates.is_enabled("NFTablesProxyMode"));
    }
}
