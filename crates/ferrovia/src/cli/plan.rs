//! `ferrovia plan`

use anyhow::bail;
use clap::Args;
use ferrovia_core::desired::Desired;
use ferrovia_core::difference::services::delta;
use ferrovia_core::family::Family;
use ferrovia_core::model::ServiceKey;

use super::objects::{Families, Loaded, ObjectFlags};
use super::output::print;

/// Flags of `ferrovia plan`.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Print only what one Service adds to the ruleset
    #[arg(value_name = "service/NAMESPACE/NAME")]
    service: Option<String>,

    #[command(flatten)]
    objects: ObjectFlags,

    /// Which family's ruleset to print
    #[arg(long, value_name = "FAMILY", default_value = "both")]
    family: Families,
}

pub(super) fn plan(args: &PlanArgs) -> anyhow::Result<()> {
    let service = args.service.as_deref().map(service_name).transpose()?;
    let loaded = args.objects.load()?;
    loaded.print_warnings();
    match &service {
        Some(service) => one_service(&loaded, service, args.family)?,
        None => {
            for family in args.family.list() {
                print(loaded.mode.plan(loaded.desired(*family)))?;
            }
        }
    }
    if !loaded.is_complete {
        bail!("some objects could not be read; the ruleset above is without them");
    }
    Ok(())
}

/// Prints the difference between a node with no services and one with only this one: numbers may differ from a running proxy's, which
/// depend on what was there before.
fn one_service(loaded: &Loaded, service: &ServiceKey, families: Families) -> anyhow::Result<()> {
    if loaded.store.service(service).is_none() {
        bail!("{}", unknown_service(loaded, service));
    }
    for family in families.list() {
        let (without, with) = alone(loaded, service, *family);
        print(
            loaded
                .mode
                .plan_change(&without, &with, &delta(&without, &with)),
        )?;
    }
    Ok(())
}

fn alone(loaded: &Loaded, service: &ServiceKey, family: Family) -> (Desired, Desired) {
    let whole = loaded.desired(family);
    let mut with = Desired {
        ports: (whole.ports.iter())
            .filter(|(key, _)| key.service == *service)
            .map(|(key, port)| (key.clone(), port.clone()))
            .collect(),
        ..whole.without_services()
    };
    let without = with.without_services();
    with.health_checks = std::sync::Arc::new(
        (whole.health_checks.iter())
            .filter(|(key, _)| *key == service)
            .map(|(key, check)| (key.clone(), *check))
            .collect(),
    );
    (without, with)
}

/// Reads `service/namespace/name` or `namespace/name`.
pub(super) fn service_name(text: &str) -> anyhow::Result<ServiceKey> {
    let rest = ["service/", "svc/"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .unwrap_or(text);
    let is_name = |name: &str| ferrovia_core::model::valid_name(name);
    match rest.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(ServiceKey::new(namespace, name))
        }
        None if is_name(rest) => Ok(ServiceKey::new("default", rest)),
        _ => bail!("{text:?} names no Service: write service/NAMESPACE/NAME"),
    }
}

/// One line that says that there is no such Service, with others of its name.
pub(super) fn unknown_service(loaded: &Loaded, service: &ServiceKey) -> String {
    let ports = || {
        Family::ALL
            .into_iter()
            .flat_map(|family| loaded.desired(family).ports.keys())
    };
    let mut alike: Vec<&str> = ports()
        .filter(|key| key.service.name() == service.name())
        .map(|key| key.service.as_str())
        .collect();
    alike.dedup();
    alike.truncate(3);
    match alike.as_slice() {
        [] => format!(
            "there is no Service {service} with a cluster IP; services without one (headless, ExternalName) and those of other proxies are not ours"
        ),
        alike => format!(
            "there is no Service {service}; did you mean {}?",
            alike.join(" or ")
        ),
    }
}
