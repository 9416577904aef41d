//! Runs the tests, a few at a time, and shows each as it starts and ends.

use std::collections::VecDeque;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use ferrovia_lab::World;
use ferrovia_lab::control_plane::Assets;

/// So many tests run at once unless `RUST_TEST_THREADS` says otherwise. Each has an API server, which keeps a core busy at its start.
const AT_ONCE: usize = 2;

/// A test; it fails by a panic.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    /// A program without which it cannot run, and which need not be in the folder.
    pub(crate) needs: Option<&'static str>,
    pub(crate) run: fn(&Assets),
}

/// A test by its path, and the program it needs besides the required ones.
macro_rules! test {
    ($run:path) => {
        Test {
            name: stringify!($run),
            needs: None,
            run: $run,
        }
    };
    ($run:path, needs $program:literal) => {
        Test {
            name: stringify!($run),
            needs: Some($program),
            run: $run,
        }
    };
}
pub(crate) use test;

/// What became of a test.
enum Outcome {
    Passed,
    Failed,
    /// The folder lacks this program.
    Lacks(&'static str),
}

/// The `main` of the test binary.
pub(crate) fn main(tests: &[Test]) -> ExitCode {
    let (flags, words): (Vec<_>, Vec<_>) = env::args().skip(1).partition(|a| a.starts_with('-'));
    let has = |name: &str| flags.iter().any(|flag| flag == name);
    let is_chosen = |test: &&Test| words.is_empty() || words.iter().any(|w| test.name.contains(w));
    let chosen: Vec<Test> = tests.iter().filter(is_chosen).copied().collect();
    if has("--list") {
        chosen
            .iter()
            .for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    if !has("--include-ignored") && !has("--ignored") {
        let count = chosen.len();
        println!("{count} tests ignored: they need a real API server (make conformance)");
        return ExitCode::SUCCESS;
    }
    match Assets::find() {
        Ok(assets) => run_all(&chosen, &assets),
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_all(tests: &[Test], assets: &Assets) -> ExitCode {
    // Of a run that was killed.
    World::sweep().expect("namespaces can be removed: run as root");
    let at_once = env::var("RUST_TEST_THREADS").ok();
    let at_once = at_once.and_then(|n| n.parse().ok()).unwrap_or(AT_ONCE);
    let queue = Mutex::new(tests.iter().enumerate().collect::<VecDeque<_>>());
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        let next = || {
            queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front()
        };
        while let Some((index, test)) = next() {
            let outcome = run(test, assets, &format!("[{}/{}]", index + 1, tests.len()));
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.push((test.name, outcome));
        }
    };
    thread::scope(|scope| (0..at_once.max(1)).for_each(|_| drop(scope.spawn(work))));
    report(
        &outcomes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
    )
}

fn run(test: &Test, assets: &Assets, place: &str) -> Outcome {
    let Test { name, needs, run } = *test;
    if let Some(program) = needs
        && assets.optional(program).is_none()
    {
        println!("{place} {name} ... IGNORED: the folder has no {program}");
        return Outcome::Lacks(program);
    }
    println!("{place} {name} ...");
    let start = Instant::now();
    // On a thread of its own: what a test starts ends with it, and a panic names it.
    let result = thread::scope(|scope| {
        let body = || catch_unwind(AssertUnwindSafe(|| run(assets)));
        let thread = thread::Builder::new().name(name.to_owned());
        let spawned = thread.spawn_scoped(scope, body);
        spawned.expect("a thread can be started").join()
    });
    let is_ok = matches!(result, Ok(Ok(())));
    let word = if is_ok { "ok" } else { "FAILED" };
    println!(
        "{place} {name} ... {word} ({:.1} s)",
        start.elapsed().as_secs_f64()
    );
    if is_ok {
        Outcome::Passed
    } else {
        Outcome::Failed
    }
}

fn report(outcomes: &[(&str, Outcome)]) -> ExitCode {
    let passed = outcomes
        .iter()
        .filter(|(_, o)| matches!(o, Outcome::Passed));
    let failed = outcomes
        .iter()
        .filter(|(_, o)| matches!(o, Outcome::Failed));
    let failed: Vec<_> = failed.map(|(name, _)| name).collect();
    println!("\n{} passed, {} failed", passed.count(), failed.len());
    for (name, outcome) in outcomes {
        if let Outcome::Lacks(program) = outcome {
            println!("IGNORED {name}: put {program} into the folder to run it");
        }
    }
    for name in &failed {
        println!("FAILED {name}");
    }
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
