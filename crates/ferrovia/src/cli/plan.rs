//! `ferrovia plan`

use anyhow::bail;
use clap::Args;
use ferrovia_core::model::ServiceKey;

use super::daemon;
use super::objects::{Answerer, Families, Loaded, ObjectFlags};
use super::output::print;
use crate::inspect::query::plan::{Plans, alone};
use crate::inspect::query::{service_name, unknown_service};
use crate::serve::admin::client::encode;

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
    match args.objects.answerer()? {
        Answerer::Daemon(client) => {
            let service = service.map(|key| format!("service={}", encode(key.as_str())));
            let family = args.family.parameter().map(str::to_owned);
            let parameters: Vec<String> = service.into_iter().chain(family).collect();
            print_all(&daemon::ask(
                &client,
                &format!("plan?{}", parameters.join("&")),
            )?)
        }
        Answerer::Objects => {
            let loaded = args.objects.load()?;
            loaded.print_warnings();
            print_all(&plans(&loaded, service.as_ref(), args.family)?)?;
            if !loaded.is_complete {
                bail!("some objects could not be read; the ruleset above is without them");
            }
            Ok(())
        }
    }
}

fn plans(
    loaded: &Loaded,
    service: Option<&ServiceKey>,
    families: Families,
) -> anyhow::Result<Plans> {
    let desired = families.list().iter().map(|family| loaded.desired(*family));
    let Some(service) = service else {
        return Ok(Plans::whole(loaded.mode(), desired));
    };
    if loaded.store.service(service).is_none() {
        return Err(unknown_service(&loaded.trace_context(), service).into());
    }
    let alone: Vec<_> = desired.map(|desired| alone(desired, service)).collect();
    Ok(Plans::of_service(loaded.mode(), &alone))
}

fn print_all(plans: &Plans) -> anyhow::Result<()> {
    for family in &plans.families {
        print(&family.plan)?;
    }
    Ok(())
}
