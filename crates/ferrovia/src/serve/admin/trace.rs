//! `trace`: where a packet would go. Reading the question and wording the answer is [`look`](crate::inspect::query)'s, following the packet
//! [`ferrovia_core::trace`]'s.

use ferrovia_core::trace::trace;
use serde_json::{Value, json};

use super::problem::Problem;
use super::query::Query;
use super::{Admin, VERSION};
use crate::inspect::query::Question;
use crate::inspect::query::trace::{Answer, Live};

const HINT: &str = "ask for trace?from=10.244.1.20&to=10.96.0.10:53/udp; from may also be node, outside or pod/NAMESPACE/NAME, to may be service/NAMESPACE/NAME:PORT";

impl Admin {
    pub(super) async fn trace(&self, query: &Query) -> Result<Value, Problem> {
        let need = |name: &str| {
            let missing = || Problem::bad(format!("the parameter {name} is missing"), HINT);
            query.get(name).map(str::trim).ok_or_else(missing)
        };
        let question = Question::read(need("from")?, need("to")?)?;
        let profile = self.about.mode.trace_profile();
        let traced = self.ask(move |engine| {
            let context = engine.trace_context(profile);
            question
                .packet(&context)
                .map(|packet| trace(&context, &packet))
        });
        let trace = traced.await??;
        let answer = if query.flag("kernel")? {
            let look = self.looker.ask(move |kernel| Answer {
                live: Live::read(&*kernel.mode, &trace),
                trace,
            });
            look.await?
        } else {
            Answer {
                trace,
                live: Live::default(),
            }
        };
        let text = answer.text();
        let mut value = json!(answer);
        value["version"] = VERSION.into();
        value["text"] = text.into();
        Ok(value)
    }
}
