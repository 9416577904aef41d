//! `ferrovia trace`

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use ferrovia_core::trace::{Cause, Outcome, Trace, trace as follow};
use serde_json::Value;

use super::daemon;
use super::objects::{Answerer, Loaded, ObjectFlags};
use super::output::{Format, print};
use crate::inspect::query::Question;
use crate::inspect::query::trace::{Answer, Live};
use crate::serve::admin::client::{Client, encode};

/// Flags of `ferrovia trace`.
#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    /// SOURCE [->] DESTINATION. A source is an address, pod/NAMESPACE/NAME, `node` or `outside`; a destination is
    /// ADDRESS:PORT[/PROTOCOL] or service/NAMESPACE/NAME[:PORT]. Shells take an unquoted > for themselves: quote the arrow, write `to`,
    /// or leave it out
    #[arg(value_name = "PACKET", required = true, num_args = 1..=6)]
    packet: Vec<String>,

    /// The source, if it is not part of the packet
    #[arg(long, value_name = "SOURCE")]
    from: Option<String>,

    #[command(flatten)]
    objects: ObjectFlags,

    /// Do not look into the kernel
    #[arg(long)]
    no_kernel: bool,

    /// How to print it
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

pub(super) fn trace(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let (from, to) = Question::split(&args.packet, args.from.as_deref())?;
    let question = Question::read(&from, &to)?;
    let outcome = match args.objects.answerer()? {
        Answerer::Daemon(client) => ask(args, &client, &from, &to)?,
        Answerer::Objects => work_out(args, &question)?,
    };
    Ok(ExitCode::from(match outcome {
        Outcome::Delivered => 0,
        Outcome::Refused => 10,
        Outcome::Dropped => 11,
        Outcome::NotAService => 12,
    }))
}

fn ask(args: &TraceArgs, client: &Client, from: &str, to: &str) -> anyhow::Result<Outcome> {
    let path = format!(
        "trace?from={}&to={}&kernel={}",
        encode(from),
        encode(to),
        !args.no_kernel
    );
    let mut answer = daemon::ask::<Value>(client, &path)?;
    let outcome = serde_json::from_value(answer["outcome"].clone())
        .context("the daemon's answer has no outcome")?;
    let text = answer["text"].take();
    match args.output {
        Format::Text => print(text.as_str().unwrap_or_default())?,
        Format::Json => {
            if let Some(fields) = answer.as_object_mut() {
                fields.remove("text");
            }
            print(format_args!("{answer:#}\n"))?;
        }
    }
    Ok(outcome)
}

/// The answer from the few objects that seem to matter; none if they are not enough to be sure.
fn in_short(args: &TraceArgs, question: &Question) -> anyhow::Result<Option<(Loaded, Trace)>> {
    let Some(loaded) = args.objects.load_about(question)? else {
        return Ok(None);
    };
    let context = loaded.trace_context();
    let packet = question.packet(&context).ok();
    let trace = packet.map(|packet| follow(&context, &packet));
    // Whatever names a Service was not missed. That there is none is not believed before all has been read.
    let trace = trace.filter(|trace| trace.service.is_some() || trace.cause == Cause::NoSuchPort);
    Ok(trace.map(|trace| (loaded, trace)))
}

fn work_out(args: &TraceArgs, question: &Question) -> anyhow::Result<Outcome> {
    let (loaded, trace) = match in_short(args, question)? {
        Some(found) => found,
        None => {
            let loaded = args.objects.load()?;
            let context = loaded.trace_context();
            let trace = follow(&context, &question.packet(&context)?);
            (loaded, trace)
        }
    };
    loaded.print_warnings();
    let live = if !args.no_kernel && loaded.is_here {
        Live::read(loaded.mode(), &trace)
    } else {
        Live::default()
    };
    let answer = Answer { trace, live };
    match args.output {
        Format::Json => print(format_args!("{}\n", serde_json::to_string_pretty(&answer)?))?,
        Format::Text => print(answer.text())?,
    }
    if !loaded.is_complete {
        bail!("some objects could not be read; the answer above is without them");
    }
    Ok(answer.trace.outcome)
}
