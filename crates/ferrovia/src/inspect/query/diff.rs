//! Where the kernel is not as wanted.

use std::sync::Arc;

use ferrovia_core::desired::Desired;
use ferrovia_core::difference::{Difference, DifferenceKind};
use ferrovia_host::portals::Directory;
use serde::{Deserialize, Serialize};

use crate::mode::Mode;
use crate::sync::backend::SyncError;

/// What was compared, and what came of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compared {
    /// The mode.
    pub mode: String,
    /// Nothing differs.
    pub same: bool,
    /// How many service ports are wanted.
    pub service_ports: usize,
    /// What differs, in each family that was asked about.
    pub families: Vec<FamilyDifferences>,
}

/// What differs in one family.
#[derive(Debug, Serialize, Deserialize)]
pub struct FamilyDifferences {
    /// The family.
    pub family: String,
    /// What differs.
    pub differences: Vec<Difference>,
}

/// How this machine is looked at.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The mode that programs it.
    pub mode: Arc<dyn Mode>,
    /// The rules count connections.
    pub counters: bool,
    /// The proxies of this process; none if it is not the one that listens.
    pub proxies: Option<Directory>,
}

impl Kernel {
    /// Compares the desired state with the kernel.
    ///
    /// # Errors
    /// If the kernel cannot be read, or the mode cannot be compared from here.
    pub fn compare<'a>(
        &self,
        desired: impl IntoIterator<Item = &'a Desired>,
    ) -> Result<Compared, SyncError> {
        let mut compared = Compared {
            mode: self.mode.name().to_owned(),
            same: true,
            service_ports: 0,
            families: Vec::new(),
        };
        for desired in desired {
            let differences = (self.mode).compare(desired, self.counters, self.proxies.as_ref())?;
            compared.same &= differences.is_empty();
            compared.service_ports += desired.ports.len();
            compared.families.push(FamilyDifferences {
                family: desired.family.name().to_owned(),
                differences,
            });
        }
        Ok(compared)
    }
}

impl Compared {
    /// How many differences of a kind there are.
    fn count(&self, kind: DifferenceKind) -> usize {
        let all = self.families.iter().flat_map(|family| &family.differences);
        all.filter(|difference| difference.kind == kind).count()
    }

    /// The outcome in one line. `wanted` says what the kernel was compared with.
    pub fn in_one_line(&self, wanted: &str) -> String {
        let Self {
            mode,
            service_ports,
            ..
        } = self;
        if self.same {
            return format!(
                "OK: the kernel has {wanted} ({mode} mode, {service_ports} service ports)\n"
            );
        }
        format!(
            "DRIFT: {} missing, {} foreign, {} wrong in the kernel, compared with {wanted} ({mode} mode); ferrovia diff shows them\n",
            self.count(DifferenceKind::Missing),
            self.count(DifferenceKind::Foreign),
            self.count(DifferenceKind::Wrong)
        )
    }
}
