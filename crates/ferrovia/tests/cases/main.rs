//! Runs the case files in `tests/cases` against the real kernel.
//!
//! Each case gets its own cluster of network namespaces. After every step four things must hold: the expected texts (desired state and
//! plans) are unchanged, packets are forwarded as the case says, a trace predicts the same, and the kernel's state means the same as that
//! of a full sync. Every case runs in every mode, in iptables mode with both sets of tools; in ipvs mode it runs in user-mode Linux, where
//! this program is started again. `CASES=text` runs only files whose path contains the text, `MODES=text` only modes whose name contains
//! it; `BLESS=1` writes the expected texts instead of comparing them.
//!
//! Random scenarios follow: clusters for which the trace predicts how packets are forwarded (`CASES=random/ CASES_RANDOM=200` runs two
//! hundred of them, `CASES_RANDOM=200..400` others), and sequences of changes (`CASES=random-changes/`).

mod engine_node;
mod objects;
mod offline;
mod options;
mod prediction;
mod random_changes;
mod random_clusters;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ferrovia_core::family::Family;
use ferrovia_lab::case::Case;
use ferrovia_lab::run::Session;
use ferrovia_lab::uml::{self, suite};
use ferrovia_lab::world::{Spec, World};

use crate::engine_node::{EngineNode, ModeVariant};
use crate::offline::OfflineProxy;

/// The folders that are run with bind portals unless `MODES` is set: not those about properties of packets, such as masquerading.
const BIND_PORTAL_FOLDERS: [&str; 16] = [
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
/// How many random clusters run unless `CASES_RANDOM` is set.
const RANDOM_CLUSTERS: &str = "2";
/// The seeds of random sequences of changes.
const CHANGE_SEEDS: [u64; 3] = [1, 2, 3];
/// A guest has one core and starts programs slowly, so two share the work.
const GUESTS: usize = 2;
/// The environment variable with the share of cases that a guest runs.
const SHARE_OF_GUEST: &str = "FERROVIA_SHARE_OF_GUEST";

fn main() -> ExitCode {
    uml::become_init_if_asked();
    // The default lock file of the legacy tools is shared by the whole machine.
    let lock = std::env::temp_dir().join("ferrovia-cases-xtables.lock");
    // SAFETY: no other thread has been started yet.
    unsafe { std::env::set_var("XTABLES_LOCKFILE", lock) };
    if suite::is_inside() {
        restrict_search_path();
        return exit_code(run_all(&ModeVariant::IN_USER_MODE_LINUX));
    }
    // Cases mostly wait, so all kernels work in parallel.
    std::thread::scope(|scope| {
        let is_wanted = chosen(&ModeVariant::IN_USER_MODE_LINUX).is_some();
        let guests = (0..GUESTS).filter(|_| is_wanted).map(|guest| {
            scope.spawn(move || suite::boot_and_run_inside(&[(SHARE_OF_GUEST, &guest.to_string())]))
        });
        let guests: Vec<_> = guests.collect();
        let here = run_all(&ModeVariant::HERE);
        let inside = guests
            .into_iter()
            .map(|guest| guest.join().expect("booting does not panic"));
        exit_code(inside.fold(here, |all, one| all && one))
    })
}

/// Limits the search path to the legacy tools. User-mode Linux has no nf_tables for IP; without the nft tools, detecting which tools to use
/// starts two programs instead of a dozen.
fn restrict_search_path() {
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
    // SAFETY: no other thread has been started yet.
    unsafe { std::env::set_var("PATH", folder) };
}

fn exit_code(is_ok: bool) -> ExitCode {
    if is_ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs every chosen case in those of these variants that `MODES` selects.
fn run_all(variants: &[ModeVariant]) -> bool {
    World::sweep().expect("namespaces of dead test runs can be removed");
    let runs = runs(variants);
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(BTreeMap::new());
    // Cases mostly wait for packets that must not arrive, so more run in parallel than there are cores. A guest has one core, which is busy
    // starting programs.
    let parallel = if suite::is_inside() { 2 } else { 6 };
    std::thread::scope(|scope| {
        for _ in 0..parallel {
            scope.spawn(|| {
                while let Some((scenario, variant)) = runs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let start = Instant::now();
                    let problems = run(scenario, *variant);
                    let verdict = if problems.is_empty() { "ok" } else { "FAILED" };
                    let details = problems.iter().map(|p| p.replace('\n', "\n  "));
                    let details: String = details.map(|problem| format!("\n  {problem}")).collect();
                    // One call, because other threads print too.
                    println!(
                        "case {scenario} in {} ... {verdict} ({:.1?}){details}",
                        variant.name(),
                        start.elapsed()
                    );
                    if !problems.is_empty() {
                        failures
                            .lock()
                            .expect("no runner panics")
                            .insert((scenario.clone(), variant.name()), problems);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no runner panics");
    for (scenario, variant) in failures.keys() {
        println!("failed: {scenario} in {variant}");
    }
    println!(
        "\n{} passed, {} failed",
        runs.len() - failures.len(),
        failures.len()
    );
    failures.is_empty()
}

/// Those of these variants that `MODES` selects, if any.
fn chosen(variants: &[ModeVariant]) -> Option<Vec<ModeVariant>> {
    let word = std::env::var("MODES").unwrap_or_default();
    let variants = variants.iter().copied();
    let variants: Vec<ModeVariant> = variants
        .filter(|variant| variant.name().contains(&word))
        .collect();
    (!variants.is_empty()).then_some(variants)
}

/// What a run consists of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scenario {
    /// A case file.
    File(PathBuf),
    /// The random cluster of this seed.
    RandomCluster(u64),
    /// The random sequence of changes of this seed.
    RandomChanges(u64),
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::RandomCluster(seed) => write!(f, "random/{seed}"),
            Self::RandomChanges(seed) => write!(f, "random-changes/{seed}"),
        }
    }
}

/// Every scenario in each of these variants that it runs in.
fn runs(variants: &[ModeVariant]) -> Vec<(Scenario, ModeVariant)> {
    let variants = chosen(variants).unwrap_or_default();
    let files = case_files().into_iter().map(Scenario::File);
    let all = files.chain(random_clusters()).chain(random_changes());
    let runs = all.flat_map(|scenario| {
        variants
            .iter()
            .map(move |variant| (scenario.clone(), *variant))
    });
    let runs = runs.filter(|(scenario, variant)| is_run_by_default(scenario, *variant));
    let share = std::env::var(SHARE_OF_GUEST).ok();
    let share: Option<usize> = share.and_then(|share| share.parse().ok());
    let is_ours = |at: usize| share.is_none_or(|share| at % GUESTS == share);
    let runs = runs.enumerate().filter(|(at, _)| is_ours(*at));
    runs.map(|(_, run)| run).collect()
}

/// Whether a scenario runs in this variant.
fn is_run_by_default(scenario: &Scenario, variant: ModeVariant) -> bool {
    let file = match scenario {
        Scenario::File(file) => file.to_string_lossy(),
        Scenario::RandomCluster(_) => return true,
        Scenario::RandomChanges(_) => return variant == ModeVariant::Nft,
    };
    variant != ModeVariant::BindPortals
        || std::env::var_os("MODES").is_some()
        || BIND_PORTAL_FOLDERS.iter().any(|part| file.contains(part))
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

/// The random clusters: those of `CASES_RANDOM`, or a few with fixed seeds.
fn random_clusters() -> impl Iterator<Item = Scenario> {
    let word = std::env::var("CASES").unwrap_or_default();
    let wanted = std::env::var("CASES_RANDOM").unwrap_or_else(|_| RANDOM_CLUSTERS.to_owned());
    let (first, end) = wanted.split_once("..").unwrap_or(("0", &wanted));
    let number = |text: &str| -> u64 {
        let number = text.parse();
        number.unwrap_or_else(|_| panic!("CASES_RANDOM={wanted} is neither a number nor a range"))
    };
    let numbers = (number(first)..number(end)).map(Scenario::RandomCluster);
    numbers.filter(move |scenario| scenario.to_string().contains(&word))
}

fn random_changes() -> impl Iterator<Item = Scenario> {
    let word = std::env::var("CASES").unwrap_or_default();
    let all = CHANGE_SEEDS.into_iter().map(Scenario::RandomChanges);
    all.filter(move |scenario| scenario.to_string().contains(&word))
}

/// Runs a scenario; returns the problems.
fn run(scenario: &Scenario, variant: ModeVariant) -> Vec<String> {
    let run = || match scenario {
        Scenario::File(file) => run_case(file, variant),
        Scenario::RandomCluster(seed) => random_clusters::run(*seed, variant),
        Scenario::RandomChanges(seed) => random_changes::run(*seed, variant),
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(problems) => problems,
        Err(panic) => vec![format!("panicked: {:?}", panic.downcast_ref::<String>())],
    }
}

fn run_case(file: &Path, variant: ModeVariant) -> Vec<String> {
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
    run_steps(case, &world, variant)
}

fn run_steps(mut case: Case, world: &World, variant: ModeVariant) -> Vec<String> {
    let mut node = EngineNode::start(&case.node.options, world, variant);
    let mut offline = OfflineProxy::new(&case.node.options, node.addresses());
    let mut session = Session::new(world);
    let mut problems = Vec::new();
    for index in 0..case.steps.len() {
        let number = index + 1;
        let step = case.steps[index].clone();
        let events = match node.objects.step(&step.yaml, step.yaml_line) {
            Ok(events) => events,
            Err(problem) => return vec![format!("step {number}: {problem}")],
        };
        let texts = offline.apply(events.clone());
        // The texts do not depend on the mode of the run.
        let expected = step.expected.iter().filter(|_| variant == ModeVariant::Nft);
        for (name, expected) in expected {
            let Some(text) = texts.get(name.as_str()) else {
                problems.push(format!("step {number}: unknown section {name}"));
                continue;
            };
            if std::env::var_os("BLESS").is_some() {
                case.set_expected(number, name, text);
            } else if expected.trim() != text.trim() {
                problems.push(format!(
                    "step {number}: {name} differs (`make bless` updates it); it is now\n{text}"
                ));
            }
        }
        problems.extend(
            node.apply(events)
                .into_iter()
                .map(|problem| format!("step {number}: {problem}")),
        );
        let lines = node.flows(&step);
        let wrong = node.wrong_predictions(&lines);
        let flows = session.run(&lines);
        problems.extend(
            flows
                .into_iter()
                .chain(wrong)
                .map(|problem| format!("step {number}: {problem}")),
        );
        // A comparison takes seconds in a guest, so only the last step is compared there.
        if suite::is_inside() && number < case.steps.len() {
            continue;
        }
        for family in Family::ALL {
            problems.extend(
                node.compare_with_scratch(family)
                    .map(|p| format!("step {number}: {family}: {p}")),
            );
        }
    }
    if std::env::var_os("BLESS").is_some() && variant == ModeVariant::Nft {
        // Runs of other modes may read the file at the same time.
        let beside = case.file.with_extension("case.new");
        std::fs::write(&beside, case.text()).expect("the folder is writable");
        std::fs::rename(&beside, &case.file).expect("the case file is writable");
    }
    problems
}
