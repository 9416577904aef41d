//! Runs the case files in `tests/cases` against the real kernel.
//!
//! Each case gets a cluster of network namespaces of its own. After every step four things must hold: the blessed texts (what is
//! desired, what is written) are as before, packets go where the case says, a trace says the same of each of them, and the kernel's table
//! means the same as one written from scratch. Everything is done in every mode, and in iptables mode with both kinds of tools. `CASES=word` runs only files whose path contains
//! the word, `MODES=word` only modes whose name does; `BLESS=1` writes the texts instead of comparing them.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::cluster::{Cluster, Way};
use common::paper::Paper;
use ferrovia_core::family::Family;
use ferrovia_lab::case::Case;
use ferrovia_lab::run::Session;
use ferrovia_lab::world::{Spec, World};

fn main() -> ExitCode {
    World::sweep().expect("namespaces of dead test runs can be removed");
    // Before there is another thread. The lock of the legacy tools is the whole machine's, and others may hold it.
    let lock = std::env::temp_dir().join("ferrovia-cases-xtables.lock");
    // SAFETY: there is only this thread.
    unsafe { std::env::set_var("XTABLES_LOCKFILE", lock) };
    let files = runs();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(BTreeMap::new());
    // Most of a case is waiting for packets that must not arrive, so more run at once than there are cores.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some((file, way)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let problems = run_case(file, *way);
                    println!(
                        "case {} in {} ... {}",
                        file.display(),
                        way.name(),
                        if problems.is_empty() { "ok" } else { "FAILED" }
                    );
                    if !problems.is_empty() {
                        failures
                            .lock()
                            .expect("no runner panics")
                            .insert((file.clone(), way.name()), problems);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no runner panics");
    for ((file, way), problems) in &failures {
        println!("\n{} in {way}:", file.display());
        problems
            .iter()
            .for_each(|problem| println!("  {}", problem.replace('\n', "\n  ")));
    }
    println!(
        "\n{} passed, {} failed",
        files.len() - failures.len(),
        failures.len()
    );
    if failures.is_empty() && !files.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Every case in every mode.
fn runs() -> Vec<(PathBuf, Way)> {
    let word = std::env::var("MODES").unwrap_or_default();
    let ways = Way::ALL
        .into_iter()
        .filter(|way| way.name().contains(&word));
    let ways: Vec<Way> = ways.collect();
    let files = case_files().into_iter();
    files
        .flat_map(|file| ways.iter().map(move |way| (file.clone(), *way)))
        .collect()
}

fn case_files() -> Vec<PathBuf> {
    let word = std::env::var("CASES").unwrap_or_default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut folders = vec![root];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the case folder is readable") {
            let path = entry.expect("the case folder is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains(&word) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// What is wrong with a case; nothing if all is well.
fn run_case(file: &Path, way: Way) -> Vec<String> {
    let case = match Case::read(file) {
        Ok(case) => case,
        Err(error) => return vec![error.to_string()],
    };
    let bridge = case
        .node
        .options
        .get("bridge")
        .is_some_and(|value| value == "true");
    let world = match World::new(Spec {
        bridge,
        ..Spec::default()
    }) {
        Ok(world) => world,
        Err(error) => return vec![format!("cannot build the lab: {error}")],
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run_steps(case, &world, way)
    })) {
        Ok(problems) => problems,
        Err(panic) => vec![format!("panicked: {:?}", panic.downcast_ref::<String>())],
    }
}

fn run_steps(mut case: Case, world: &World, way: Way) -> Vec<String> {
    let mut cluster = Cluster::start(&case.node.options, world, way);
    let mut paper = Paper::new(&case.node.options, cluster.addresses());
    let mut session = Session::new(world);
    let mut problems = Vec::new();
    for index in 0..case.steps.len() {
        let number = index + 1;
        let step = case.steps[index].clone();
        let events = match cluster.objects.step(&step.yaml, step.yaml_line) {
            Ok(events) => events,
            Err(problem) => return vec![format!("step {number}: {problem}")],
        };
        let texts = paper.take(events.clone());
        // The texts are of all modes, so one run is enough for them.
        let expected = step.expected.iter().filter(|_| way == Way::Nft);
        for (name, expected) in expected {
            let Some(text) = texts.get(name.as_str()) else {
                problems.push(format!("step {number}: no runner knows the section {name}"));
                continue;
            };
            if std::env::var_os("BLESS").is_some() {
                case.set_expected(number, name, text);
            } else if expected.trim() != text.trim() {
                problems.push(format!(
                    "step {number}: {name} differs (make bless writes it anew); it is now\n{text}"
                ));
            }
        }
        problems.extend(
            cluster
                .take(events)
                .into_iter()
                .map(|problem| format!("step {number}: {problem}")),
        );
        let lines = step.flows(way.section());
        let wrong = cluster.wrong_predictions(lines);
        let flows = session.run(lines);
        problems.extend(
            flows
                .into_iter()
                .chain(wrong)
                .map(|problem| format!("step {number}: {problem}")),
        );
        for family in Family::ALL {
            problems.extend(
                cluster
                    .compare_with_scratch(family)
                    .map(|p| format!("step {number}: {family}: {p}")),
            );
        }
    }
    if std::env::var_os("BLESS").is_some() && way == Way::Nft {
        std::fs::write(&case.file, case.text()).expect("the case file is writable");
    }
    problems
}
