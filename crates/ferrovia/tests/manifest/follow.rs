//! The whole source running, with inotify: how soon, and how often.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use ferrovia::source::manifest::{Batch, Folder, run};

use crate::support::{TempDir, events, service};

/// Long enough for a busy machine. That no change waits for the look every ten seconds is for the tests of the best of a few.
const SOON: Duration = Duration::from_secs(60);

/// The source in a thread of its own. It ends with the first batch after the receiver went.
struct Follower {
    batches: Receiver<Batch>,
}

impl Follower {
    /// Starts and takes in all that was there: files written just before may take a second look.
    fn start(folder: &Path) -> (Self, Vec<String>) {
        let follower = Self::start_only(folder);
        let mut found = Vec::new();
        let mut is_complete = false;
        while !is_complete {
            let batch = follower.next_batch();
            found.extend(events(&batch));
            is_complete = batch.is_complete;
        }
        // The second look, once everything is watched, finds nothing; let it pass.
        thread::sleep(Duration::from_millis(30));
        (follower, found)
    }

    fn start_only(folder: &Path) -> Self {
        let folder = Folder::open(folder).unwrap();
        let (sender, batches) = channel();
        thread::spawn(move || {
            run(folder, |batch| match sender.send(batch) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
        });
        Self { batches }
    }

    fn next_batch(&self) -> Batch {
        self.batches.recv_timeout(SOON).expect("a batch")
    }

    fn next(&self) -> Vec<String> {
        events(&self.next_batch())
    }

    /// All events until this one has come.
    fn until(&self, last: &str) -> Vec<String> {
        let mut all = Vec::new();
        while all.last().map(String::as_str) != Some(last) {
            all.extend(self.next());
        }
        all
    }

    fn nothing_for(&self, time: Duration) {
        let batch = self.batches.recv_timeout(time);
        assert!(matches!(batch, Err(RecvTimeoutError::Timeout)), "{batch:?}");
    }
}

#[test]
fn a_change_arrives_within_moments() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("a", 1));
    let (follower, first) = Follower::start(dir.root());
    assert_eq!(first, ["+Service default/a:1"]);
    // The best of a few: other tests load the machine.
    let mut best = Duration::MAX;
    for port in 2..12 {
        dir.write("a.yaml", service("a", port));
        let begin = Instant::now();
        assert_eq!(follower.next(), [format!("+Service default/a:{port}")]);
        best = best.min(begin.elapsed());
    }
    // Far from the 20 ms it takes, and far from the ten seconds of a scan that nobody asked for.
    assert!(best < Duration::from_secs(2), "{best:?}");
}

#[test]
fn editors_config_maps_and_deletions_are_noticed() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("a", 1));
    dir.swap_data("1", "web.yaml", &service("web", 1));
    let (follower, _) = Follower::start(dir.root());
    dir.replace("a.yaml", &service("a", 2));
    assert_eq!(follower.next(), ["+Service default/a:2"]);
    dir.swap_data("2", "web.yaml", &service("web", 2));
    assert_eq!(follower.next(), ["+Service default/web:2"]);
    dir.remove("a.yaml");
    assert_eq!(follower.next(), ["-Service default/a"]);
}

#[test]
fn a_burst_of_writes_is_few_batches() {
    let dir = TempDir::new();
    let (follower, _) = Follower::start(dir.root());
    let begin = Instant::now();
    for number in 0..200 {
        dir.write(
            &format!("{}.yaml", number % 20),
            service(&format!("s{}", number % 20), number),
        );
    }
    let written_in = begin.elapsed();
    let expected: BTreeMap<_, u16> = (0..20)
        .map(|n| (format!("+Service default/s{n}"), 180 + n))
        .collect();
    let mut state = BTreeMap::new();
    let mut batches = 0;
    while state != expected {
        batches += 1;
        for event in follower.next() {
            // A file is emptied before it is written, which must not be taken for the end of its object.
            let (name, port) = event.split_once(':').expect("only applied objects");
            state.insert(name.to_owned(), port.parse::<u16>().unwrap());
        }
    }
    // A writer that is held up for ten milliseconds looks as if it had ended.
    let pauses = written_in.as_millis() / 10;
    assert!(
        batches <= 10 + pauses,
        "{batches} batches in {written_in:?}"
    );
}

#[test]
fn half_a_file_is_not_looked_at_while_others_change() {
    let dir = TempDir::new();
    dir.write("big.yaml", service("one", 1) + "---\n" + &service("two", 1));
    let (follower, _) = Follower::start(dir.root());
    let mut big = fs::File::create(dir.path("big.yaml")).unwrap();
    big.write_all((service("one", 2) + "---\n").as_bytes())
        .unwrap();
    dir.write("other.yaml", service("other", 1));
    // Longer than a burst may last: the other change is reported meanwhile.
    assert_eq!(follower.next(), ["+Service default/other:1"]);
    thread::sleep(Duration::from_millis(40));
    big.write_all(b"# Still being written.\n").unwrap();
    dir.write("other.yaml", service("other", 2));
    assert_eq!(follower.next(), ["+Service default/other:2"]);
    big.write_all(service("two", 2).as_bytes()).unwrap();
    drop(big);
    assert_eq!(
        follower.next(),
        ["+Service default/one:2", "+Service default/two:2"]
    );
}

#[test]
fn an_object_taken_out_of_a_file_goes_within_moments() {
    let dir = TempDir::new();
    let (follower, _) = Follower::start(dir.root());
    let mut best = Duration::MAX;
    for _ in 0..5 {
        dir.write("a.yaml", service("a", 1) + "---\n" + &service("b", 1));
        assert!(follower.next().contains(&"+Service default/b:1".to_owned()));
        dir.write("a.yaml", service("a", 1));
        let begin = Instant::now();
        assert_eq!(follower.next(), ["-Service default/b"]);
        best = best.min(begin.elapsed());
    }
    // Far from the 20 ms it takes, and far from the ten seconds of a scan that nobody asked for.
    assert!(best < Duration::from_secs(2), "{best:?}");
}

#[test]
fn a_file_that_is_emptied_and_still_open_waits_for_its_writer() {
    let dir = TempDir::new();
    dir.write("slow.yaml", service("slow", 1));
    let (follower, _) = Follower::start(dir.root());
    // As the shell does for `command > slow.yaml`, long before the command has something to say.
    let mut slow = fs::File::create(dir.path("slow.yaml")).unwrap();
    thread::sleep(Duration::from_millis(1500));
    dir.write("other.yaml", service("other", 1));
    assert_eq!(follower.next(), ["+Service default/other:1"]);
    slow.write_all(service("slow", 2).as_bytes()).unwrap();
    drop(slow);
    assert_eq!(follower.next(), ["+Service default/slow:2"]);
}

#[test]
fn an_emptied_file_is_believed_in_the_end() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("a", 1));
    let (follower, _) = Follower::start(dir.root());
    let begin = Instant::now();
    dir.write("a.yaml", "");
    assert_eq!(follower.next(), ["-Service default/a"]);
    assert!(begin.elapsed() >= Duration::from_millis(500));
}

#[test]
fn a_file_that_is_empty_at_the_start_is_not_taken_for_whole_at_once() {
    let dir = TempDir::new();
    dir.write("a.yaml", "");
    let follower = Follower::start_only(dir.root());
    let first = follower.next_batch();
    assert!(!first.is_complete && !first.events.is_empty(), "{first:?}");
    dir.write("a.yaml", service("a", 1));
    // On a busy machine an empty file may be believed before it is written.
    let (mut received, mut is_complete) = (Vec::new(), false);
    while received.is_empty() || !is_complete {
        let batch = follower.next_batch();
        received.extend(events(&batch));
        is_complete |= batch.is_complete;
    }
    assert_eq!(received, ["+Service default/a:1"]);
}

#[test]
fn a_file_that_stays_empty_is_complete_in_the_end() {
    let dir = TempDir::new();
    dir.write("a.yaml", "");
    let follower = Follower::start_only(dir.root());
    assert!(!follower.next_batch().is_complete);
    let second = follower.next_batch();
    assert!(second.is_complete && second.events.is_empty(), "{second:?}");
}

#[test]
fn a_file_mended_after_the_start_completes_the_folder() {
    let dir = TempDir::new();
    dir.write("a.yaml", "{");
    let follower = Follower::start_only(dir.root());
    let mut errors = 0;
    while errors == 0 {
        let batch = follower.next_batch();
        assert!(!batch.is_complete, "{batch:?}");
        errors += batch.problems.len();
    }
    // Renamed, so that it is never seen incomplete.
    dir.replace("a.yaml", &service("a", 1));
    let batch = follower.next_batch();
    assert_eq!(events(&batch), ["+Service default/a:1"]);
    assert!(batch.is_complete || follower.next_batch().is_complete);
}

#[test]
fn new_sub_folders_are_watched_at_once() {
    let dir = TempDir::new();
    let (follower, _) = Follower::start(dir.root());
    fs::create_dir_all(dir.path("x/y")).unwrap();
    dir.write("x/y/a.yaml", service("a", 1));
    assert_eq!(follower.until("+Service default/a:1").len(), 1);
    dir.write("x/y/a.yaml", service("a", 2));
    assert_eq!(follower.next(), ["+Service default/a:2"]);
    fs::remove_dir_all(dir.path("x")).unwrap();
    assert_eq!(follower.next(), ["-Service default/a"]);
    // The same path, another directory.
    fs::create_dir(dir.path("x")).unwrap();
    thread::sleep(Duration::from_millis(50));
    dir.write("x/b.yaml", service("b", 1));
    assert_eq!(follower.next(), ["+Service default/b:1"]);
}

#[test]
fn what_links_lead_to_is_watched_too() {
    let elsewhere = TempDir::new();
    fs::create_dir(elsewhere.path("v1")).unwrap();
    fs::create_dir(elsewhere.path("v2")).unwrap();
    elsewhere.write("v1/web.yaml", service("web", 1));
    elsewhere.write("v2/web.yaml", service("web", 2));
    symlink("v1", elsewhere.path("current")).unwrap();
    let dir = TempDir::new();
    symlink(elsewhere.path("current/web.yaml"), dir.path("web.yaml")).unwrap();
    let (follower, first) = Follower::start(dir.root());
    assert_eq!(first, ["+Service default/web:1"]);

    symlink("v2", elsewhere.path("next")).unwrap();
    fs::rename(elsewhere.path("next"), elsewhere.path("current")).unwrap();
    assert_eq!(follower.next(), ["+Service default/web:2"]);
    thread::sleep(Duration::from_millis(50));
    elsewhere.write("v2/web.yaml", service("web", 3));
    assert_eq!(follower.next(), ["+Service default/web:3"]);
    // Its neighbours are none of our business.
    elsewhere.write("v2/other.yaml", service("other", 1));
    follower.nothing_for(Duration::from_millis(200));
}

#[test]
fn a_folder_that_returns_is_picked_up_again() {
    let outer = TempDir::new();
    let (path, away) = (outer.path("manifests"), outer.path("away"));
    fs::create_dir(&path).unwrap();
    outer.write("manifests/a.yaml", service("a", 1));
    let (follower, _) = Follower::start(&path);
    fs::rename(&path, &away).unwrap();
    let gone: [&str; 0] = [];
    assert_eq!(follower.next(), gone, "only a problem");
    outer.write("away/a.yaml", service("a", 2));
    fs::rename(&away, &path).unwrap();
    assert_eq!(follower.next(), ["+Service default/a:2"]);
    thread::sleep(Duration::from_millis(50));
    outer.write("manifests/a.yaml", service("a", 3));
    assert_eq!(follower.next(), ["+Service default/a:3"]);
}

#[test]
fn breaking_ends_it() {
    let dir = TempDir::new();
    let folder = Folder::open(dir.root()).unwrap();
    let mut batches = 0;
    run(folder, |_| {
        batches += 1;
        ControlFlow::Break(())
    })
    .unwrap();
    assert_eq!(batches, 1);
}
