//! The daemon with all that happens round it, and what must be so after each fault.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use ferrovia_lab::Pod;
use ferrovia_lab::random::Random;

use crate::Options;
use crate::churn::{CANARY, Churn, STEADY};
use crate::faults::{FIRST_OF_THE_LAST_DAEMON, Throw, chosen};
use crate::limits::Limits;
use crate::model::{Model, Pods};
use crate::report::{Report, Row};
use crate::stage::{PATIENCE, Stage, Usage};
use crate::traffic::{Client, Counter, Held, who_answers};

/// So much more memory at the end is no leak: a page here and there, and buffers that grew with the largest list.
const GROWTH_KIB: u64 = 24 << 10;
const GROWTH_DESCRIPTORS: usize = 6;

/// Runs everything.
pub(crate) fn play(options: &Options) -> anyhow::Result<Report> {
    let stage = Stage::build(options)?;
    let model = Model::new(&stage.api, STEADY.0 + 1)?;
    stage.start(Limits::None)?;
    let (churn, counter, stop) = (Churn::default(), Counter::default(), AtomicBool::new(false));
    let mut scene = Scene {
        stage: &stage,
        model: &model,
        churn: &churn,
        counter: &counter,
        options,
        each: options.time / chosen(options).count().max(1) as u32,
        objects: 0,
    };
    scene.settle()?;
    scene.objects = stage.kernel_objects()?;
    thread::scope(|scope| {
        let changing = scope.spawn(|| churn.run(&stage, &model, &stop));
        let calling: Vec<_> = Client::ALL
            .into_iter()
            .enumerate()
            .map(|(number, client)| {
                let random = Random::new(number as u64 + 1);
                let (stage, model, counter, stop) = (&stage, &model, &counter, &stop);
                scope.spawn(move || client.run(stage, model, random, counter, stop))
            })
            .collect();
        let report = scene.all();
        stop.store(true, Ordering::Relaxed);
        for thread in calling.into_iter().chain([changing]) {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        report
    })
}

/// All that there is while faults are thrown.
pub(crate) struct Scene<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) model: &'a Model,
    pub(crate) churn: &'a Churn,
    counter: &'a Counter,
    pub(crate) options: &'a Options,
    /// How long each fault lasts, about.
    pub(crate) each: Duration,
    /// How many objects there were in the kernel before all.
    pub(crate) objects: usize,
}

impl Scene<'_> {
    fn all(&self) -> anyhow::Result<Report> {
        let mode = self.options.mode.name();
        let mut report = Report {
            heading: format!("Faults in {mode} mode"),
            ..Report::default()
        };
        let mut held = Held::open(self.stage, STEADY)?;
        // Connections to an endpoint that goes stay as well.
        held.extend(Held::open(self.stage, CANARY)?);
        let mut baseline: Option<Usage> = None;
        self.counter.take();
        for Throw { name, act, .. } in chosen(self.options) {
            if *name == FIRST_OF_THE_LAST_DAEMON {
                baseline = Some(self.stage.usage()?);
            }
            let mut problems = Vec::new();
            let done = act(self).unwrap_or_else(|error| {
                problems.push(format!("{error:#}"));
                "see below".to_owned()
            });
            let again = self.settle();
            self.model.end();
            let right_again = again.unwrap_or_else(|error| {
                problems.push(format!("{error:#}"));
                Duration::MAX
            });
            problems.extend(held.iter_mut().filter_map(Held::check));
            problems.extend(self.compare()?);
            if self.stage.has_panicked() || !self.stage.is_running() {
                problems.push(format!("the daemon broke; {}", self.stage.last_words()));
            }
            let is_broken = !problems.is_empty();
            let calls = self.counter.take();
            report.rows.push(Row {
                fault: name,
                done,
                calls,
                right_again,
                problems,
            });
            if is_broken {
                // What comes after would only tell the same again.
                return Ok(report);
            }
        }
        if let (Some(before), Some(row)) = (baseline, report.rows.last_mut()) {
            row.problems.extend(growth(before, self.stage.usage()?));
        }
        Ok(report)
    }

    /// Waits until a change of now has effect; answers with the time it took, and at most a call's patience more.
    pub(crate) fn settle(&self) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let mut now = None;
        self.stage.until("somebody answers", || {
            now = who_answers(self.stage, CANARY)?;
            Ok(now.is_some())
        })?;
        // Neither who answers nor who should: the one may be there because of a change that is still to come.
        let wanted = self.model.latest(CANARY);
        let is_other = |pod: &Pod| now.as_deref() != Some(pod.name()) && wanted != Pods::one(*pod);
        let other = [Pod::A, Pod::X, Pod::Y].into_iter().find(is_other);
        let other = other.context("there are more pods than two")?;
        self.model
            .change(&self.stage.api, CANARY, Pods::one(other))?;
        self.stage.until("a change has effect", || {
            Ok(who_answers(self.stage, CANARY)?.as_deref() == Some(other.name()))
        })?;
        Ok(begin.elapsed())
    }

    /// What differs from a full sync, once nothing changes.
    pub(crate) fn compare(&self) -> anyhow::Result<Option<String>> {
        self.churn.pause();
        let mut last = None;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            last = self.stage.differences()?;
            if last.is_none() {
                break;
            }
            thread::sleep(Duration::from_millis(200));
        }
        self.churn.go_on();
        Ok(last.map(|words| format!("the kernel is not what a full sync makes it: {words}")))
    }

    /// The rest of this fault's time.
    pub(crate) fn wait(&self, part: u32) {
        thread::sleep(self.each / part);
    }
}

/// What has grown.
fn growth(before: Usage, after: Usage) -> Vec<String> {
    let mut grown = Vec::new();
    if after.resident > before.resident + GROWTH_KIB {
        grown.push(format!(
            "memory grew from {} to {} KiB",
            before.resident, after.resident
        ));
    }
    if after.descriptors > before.descriptors + GROWTH_DESCRIPTORS {
        grown.push(format!(
            "descriptors grew from {} to {}",
            before.descriptors, after.descriptors
        ));
    }
    grown
}
