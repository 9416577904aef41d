//! Runs the case files in `tests/cases` against the real kernel.
//!
//! Each case gets a cluster of network namespaces of its own. After every step four things must hold: the blessed texts (what is
//! desired, what is written) are as before, packets go where the case says, a trace says the same of each of them, and the kernel's state
//! means the same as one written from scratch. Everything is done in every mode, and in iptables mode with both kinds of tools; in ipvs mode
//! it is done in user-mode Linux, in which this program runs a second time. `CASES=word` runs only files whose path contains
//! the word, `MODES=word` only modes whose name does; `BLESS=1` writes the texts instead of comparing them.
//!
//! Random clusters follow, in which the trace alone says where packets go: `CASES=random/ CASES_RANDOM=200` plays two hundred of them,
//! `CASES_RANDOM=200..400` others.

mod common;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use common::cluster::{Cluster, Way};
use common::paper::Paper;
use common::random;
use ferrovia_core::family::Family;
use ferrovia_lab::case::Case;
use ferrovia_lab::run::Session;
use ferrovia_lab::uml::{self, suite};
use ferrovia_lab::world::{Spec, World};

/// What is played with bound portals unless somebody asks for more: not what is all about packets, such as masquerading.
const ALWAYS_BOUND: [&str; 16] = [
    "affinity/",
    "changes/",
    "claims/",
    "clusterip/",
    "dualstack/",
    "externalip/",
    "hostile/",
    "loadbalancer/",
    "nodeport/",
    "nodeportaddresses/",
    "policy/",
    "slices/",
    "sourceranges/",
    "terminating/",
    "topology/",
    "weights/",
];
/// So many random clusters are played unless somebody asks for more.
const RANDOMS: &str = "2";
/// A guest has one core and starts programs slowly, so there are two.
const GUESTS: usize = 2;
/// Tells a guest which cases are its own.
const SHARE_OF_GUEST: &str = "FERROVIA_SHARE_OF_GUEST";

fn main() -> ExitCode {
    uml::become_init_if_asked();
    // The lock of the legacy tools is the whole machine's, and others may hold it.
    let lock = std::env::temp_dir().join("ferrovia-cases-xtables.lock");
    // SAFETY: there is only this thread yet.
    unsafe { std::env::set_var("XTABLES_LOCKFILE", lock) };
    if suite::is_inside() {
        offer_few_tools();
        return exit_code(run_all(&Way::IN_USER_MODE_LINUX));
    }
    // Most of a case is waiting, so all kernels work at once.
    std::thread::scope(|scope| {
        let is_wanted = chosen(&Way::IN_USER_MODE_LINUX).is_some();
        let guests = (0..GUESTS).filter(|_| is_wanted).map(|guest| {
            scope.spawn(move || suite::boot_and_run_inside(&[(SHARE_OF_GUEST, &guest.to_string())]))
        });
        let guests: Vec<_> = guests.collect();
        let here = run_all(&Way::HERE);
        let inside = guests
            .into_iter()
            .map(|guest| guest.join().expect("booting does not panic"));
        exit_code(inside.fold(here, |all, one| all && one))
    })
}

/// Leaves nothing on the search path but what is of use inside. User-mode Linux has no nf_tables for IP, and where there are no tools for
/// that, finding out which ones to use takes the start of two programs instead of a dozen.
fn offer_few_tools() {
    const TOOLS: [&str; 6] = [
        "iptables-legacy",
        "iptables-legacy-save",
        "iptables-legacy-restore",
        "ip6tables-legacy",
        "ip6tables-legacy-save",
        "ip6tables-legacy-restore",
    ];
    let folder = std::env::temp_dir().join("tools");
    std::fs::create_dir(&folder).expect("a guest's temporary files are its own");
    let path = std::env::var_os("PATH").unwrap_or_default();
    for tool in TOOLS {
        let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(tool));
        let program = candidates.find(|candidate| candidate.exists());
        let program = program.unwrap_or_else(|| panic!("{tool} is not installed"));
        std::os::unix::fs::symlink(program, folder.join(tool)).expect("links can be made");
    }
    // SAFETY: there is only this thread yet.
    unsafe { std::env::set_var("PATH", folder) };
}

fn exit_code(is_ok: bool) -> ExitCode {
    if is_ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs every case in these ways, as far as they are wanted.
fn run_all(ways: &[Way]) -> bool {
    World::sweep().expect("namespaces of dead test runs can be removed");
    let runs = runs(ways);
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(BTreeMap::new());
    // Most of a case is waiting for packets that must not arrive, so more run at once than there are cores. A guest has one core, which is
    // busy with starting programs.
    let at_once = if suite::is_inside() { 2 } else { 6 };
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some((played, way)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    let problems = run(played, *way);
                    let verdict = if problems.is_empty() { "ok" } else { "FAILED" };
                    let told = problems.iter().map(|p| p.replace('\n', "\n  "));
                    let told: String = told.map(|problem| format!("\n  {problem}")).collect();
                    // In one go, because others print too.
                    println!(
                        "case {played} in {} ... {verdict} ({:.1?}){told}",
                        way.name(),
                        start.elapsed()
                    );
                    if !problems.is_empty() {
                        failures
                            .lock()
                            .expect("no runner panics")
                            .insert((played.clone(), way.name()), problems);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no runner panics");
    for (played, way) in failures.keys() {
        println!("failed: {played} in {way}");
    }
    println!(
        "\n{} passed, {} failed",
        runs.len() - failures.len(),
        failures.len()
    );
    failures.is_empty()
}

/// Those of these ways that are wanted, if any.
fn chosen(ways: &[Way]) -> Option<Vec<Way>> {
    let word = std::env::var("MODES").unwrap_or_default();
    let ways = ways.iter().copied();
    let ways: Vec<Way> = ways.filter(|way| way.name().contains(&word)).collect();
    (!ways.is_empty()).then_some(ways)
}

/// What is played.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Played {
    /// A case file.
    File(PathBuf),
    /// The random cluster of this number.
    Random(u64),
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::Random(number) => write!(f, "random/{number}"),
        }
    }
}

/// Every case in each of these ways.
fn runs(ways: &[Way]) -> Vec<(Played, Way)> {
    let ways = chosen(ways).unwrap_or_default();
    let all = case_files().into_iter().map(Played::File).chain(randoms());
    let runs = all.flat_map(|played| ways.iter().map(move |way| (played.clone(), *way)));
    let runs = runs.filter(|(played, way)| is_played(played, *way));
    let share = std::env::var(SHARE_OF_GUEST).ok();
    let share: Option<usize> = share.and_then(|share| share.parse().ok());
    let is_ours = |at: usize| share.is_none_or(|share| at % GUESTS == share);
    let runs = runs.enumerate().filter(|(at, _)| is_ours(*at));
    runs.map(|(_, run)| run).collect()
}

/// A case is played in this way unless somebody chooses.
fn is_played(played: &Played, way: Way) -> bool {
    let Played::File(file) = played else {
        return true;
    };
    let file = file.to_string_lossy();
    way != Way::BindPortals
        || std::env::var_os("MODES").is_some()
        || ALWAYS_BOUND.iter().any(|part| file.contains(part))
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

/// The random clusters: a few that are always the same, or those that somebody asks for.
fn randoms() -> impl Iterator<Item = Played> {
    let word = std::env::var("CASES").unwrap_or_default();
    let wanted = std::env::var("CASES_RANDOM").unwrap_or_else(|_| RANDOMS.to_owned());
    let (first, end) = wanted.split_once("..").unwrap_or(("0", &wanted));
    let number = |text: &str| -> u64 {
        let number = text.parse();
        number.unwrap_or_else(|_| panic!("CASES_RANDOM={wanted} is neither a number nor a range"))
    };
    let numbers = (number(first)..number(end)).map(Played::Random);
    numbers.filter(move |played| played.to_string().contains(&word))
}

/// What is wrong; nothing if all is well.
fn run(played: &Played, way: Way) -> Vec<String> {
    let run = || match played {
        Played::File(file) => run_case(file, way),
        Played::Random(number) => random::play(*number, way),
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(problems) => problems,
        Err(panic) => vec![format!("panicked: {:?}", panic.downcast_ref::<String>())],
    }
}

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
    run_steps(case, &world, way)
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
        let lines = cluster.flows(&step);
        let wrong = cluster.wrong_predictions(&lines);
        let flows = session.run(&lines);
        problems.extend(
            flows
                .into_iter()
                .chain(wrong)
                .map(|problem| format!("step {number}: {problem}")),
        );
        // Reading everything anew takes a guest seconds, and what is right after the last step was right all along.
        if suite::is_inside() && number < case.steps.len() {
            continue;
        }
        for family in Family::ALL {
            problems.extend(
                cluster
                    .compare_with_scratch(family)
                    .map(|p| format!("step {number}: {family}: {p}")),
            );
        }
    }
    if std::env::var_os("BLESS").is_some() && way == Way::Nft {
        // The runs of other modes may be about to read it, and shall not find half of it.
        let beside = case.file.with_extension("case.new");
        std::fs::write(&beside, case.text()).expect("the folder is writable");
        std::fs::rename(&beside, &case.file).expect("the case file is writable");
    }
    problems
}
