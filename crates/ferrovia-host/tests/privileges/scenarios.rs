//! Each scenario is the main thread of a process of its own.

use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};

use ferrovia_core::dialect::nft::{NftOp, Transaction};
use ferrovia_core::family::Family;
use ferrovia_host::iptables::remove_leftovers;
use ferrovia_host::nft::Nft;
use ferrovia_host::privileges::{
    Capability, DropError, FILES_OF_OTHERS, LEGACY_IPTABLES, Missing, OomScoreError, RULES,
    drop_capabilities, drop_in_this_thread, raise_or_lower_oom_score, require,
};
use ferrovia_lab::Folder;
use ferrovia_lab::namespace::enter_new;

use crate::status::{NET_ADMIN, NET_RAW, Status};

/// A user without any rights.
const NOBODY: libc::uid_t = 65534;

/// What a kube-proxy left, as little as possible.
const LEFTOVERS: &str = "*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -m comment --comment portals -j KUBE-SERVICES\nCOMMIT\n";

pub(crate) const ALL: &[(&str, fn())] = &[
    ("net_admin_alone_writes_rules", net_admin_alone),
    ("later_threads_and_programs_have_no_more", later_threads),
    ("earlier_threads_are_reported", earlier_threads),
    ("earlier_threads_that_end_are_waited_for", ending_threads),
    ("an_earlier_thread_may_give_up_its_own", earlier_and_modest),
    ("what_was_given_up_does_not_come_back", no_way_back),
    ("what_is_missing_is_named", missing),
    ("nft_tools_do_with_net_admin", nft_tools),
    ("legacy_tools_want_net_raw_too", legacy_tools),
    ("another_user_passes_on_what_it_keeps", another_user),
    ("files_of_others_take_their_capability", files_of_others),
    ("anyone_may_raise_the_oom_score", oom_score),
];

fn net_admin_alone() {
    enter_new();
    drop_capabilities(&[Capability::CAP_NET_ADMIN]).unwrap();
    assert_eq!(Status::of_all_threads(), [Status::only(NET_ADMIN)]);
    require(&[RULES]).unwrap();

    let mut nft = Nft::open().unwrap();
    let rules = Transaction {
        family: Family::V4,
        table: "ferrovia".into(),
        ops: vec![NftOp::AddTable],
        notes: Vec::new(),
    };
    nft.apply(&rules).unwrap();
    assert!(nft.observe(Family::V4, "ferrovia", &[]).unwrap().exists);
}

fn later_threads() {
    drop_capabilities(&[Capability::CAP_NET_ADMIN]).unwrap();
    let (from_thread, of_program) =
        thread::spawn(|| (Status::of_all_threads(), Status::of_a_program()))
            .join()
            .unwrap();
    assert_eq!(from_thread, [Status::only(NET_ADMIN); 2]);
    assert_eq!(of_program, Status::only(NET_ADMIN));
}

fn earlier_threads() {
    let (end, ended) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let early = thread::Builder::new()
        .name("early".into())
        .spawn(move || {
            // It gives itself its name, so it has one only now.
            ready.send(()).unwrap();
            ended.recv()
        })
        .unwrap();
    is_ready.recv().unwrap();
    let error = drop_capabilities(&[Capability::CAP_NET_ADMIN]).unwrap_err();
    let DropError::Kept { names } = &error else {
        panic!("{error}")
    };
    assert_eq!(names, &["early"]);
    // What could be done was done.
    assert_eq!(Status::of_this_thread(), Status::only(NET_ADMIN));
    drop(end);
    early.join().unwrap().unwrap_err();
}

/// As the threads that read the output of a program do.
fn ending_threads() {
    let (ready, is_ready) = mpsc::channel();
    thread::spawn(move || {
        ready.send(()).unwrap();
        thread::sleep(Duration::from_millis(50));
    });
    is_ready.recv().unwrap();
    drop_capabilities(&[Capability::CAP_NET_ADMIN]).unwrap();
    assert_eq!(Status::of_all_threads(), [Status::only(NET_ADMIN)]);
}

fn earlier_and_modest() {
    let (end, ended) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let early = thread::spawn(move || {
        drop_in_this_thread(&[]).unwrap();
        ready.send(Status::of_this_thread()).unwrap();
        ended.recv()
    });
    assert_eq!(is_ready.recv().unwrap(), Status::only(0));
    drop_capabilities(&[Capability::CAP_NET_ADMIN]).unwrap();
    drop(end);
    early.join().unwrap().unwrap_err();
}

fn no_way_back() {
    drop_capabilities(&[Capability::CAP_NET_ADMIN]).unwrap();
    // SAFETY: no pointers; affects this thread only.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, -1);
    let error = io::Error::last_os_error();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));

    let all = caps::all();
    caps::set(None, caps::CapSet::Permitted, &all).unwrap_err();
    drop_capabilities(&[Capability::CAP_NET_RAW]).unwrap();
    let left = Status::of_this_thread();
    assert_eq!((left.permitted, left.effective, left.ambient), (0, 0, 0));
    // To say goodbye twice is no failure.
    drop_capabilities(&[]).unwrap();
}

fn missing() {
    drop_capabilities(&[Capability::CAP_NET_RAW]).unwrap();
    let wanted = [RULES, LEGACY_IPTABLES, FILES_OF_OTHERS];
    assert_eq!(require(&wanted), Err(Missing(vec![RULES, FILES_OF_OTHERS])));
    // To keep what is not there is no failure either: what is there may be enough.
    drop_capabilities(&[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]).unwrap();
    assert_eq!(Status::of_this_thread().effective, NET_RAW);
}

fn nft_tools() {
    enter_new();
    restore("iptables-nft-restore");
    drop_capabilities(&[Capability::CAP_NET_ADMIN]).unwrap();
    let removed = remove_leftovers().unwrap();
    let chains: Vec<_> = removed
        .tools
        .iter()
        .filter(|tool| !tool.is_empty())
        .map(|tool| (tool.tool.as_str(), tool.chains))
        .collect();
    assert_eq!(chains, [("iptables-nft", 1)]);
}

fn legacy_tools() {
    enter_new();
    restore("iptables-legacy-restore");
    // A thread for each, because what was given up does not come back.
    let with = |keep: &'static [Capability]| {
        let work = move || {
            drop_in_this_thread(keep).unwrap();
            remove_leftovers()
        };
        thread::spawn(work).join().unwrap()
    };
    let error = with(&[Capability::CAP_NET_ADMIN]).unwrap_err().to_string();
    assert!(error.contains("iptables-legacy-save failed"), "{error}");
    let removed = with(&[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]).unwrap();
    let chains: usize = removed.tools.iter().map(|tool| tool.chains).sum();
    assert_eq!(chains, 1, "{removed:?}");
}

fn another_user() {
    enter_new();
    restore("iptables-nft-restore");
    become_nobody();
    drop_capabilities(&[Capability::CAP_NET_ADMIN]).unwrap();
    // The limit stays, because it is not ours to lower; nothing can make use of it.
    let limit = Status::of_this_thread().bounding;
    let wanted = Status {
        bounding: limit,
        ..Status::only(NET_ADMIN)
    };
    assert_eq!(Status::of_all_threads(), [wanted]);
    assert_eq!(Status::of_a_program(), wanted);
    let saved = Command::new("iptables-nft-save").output().unwrap();
    let rules = String::from_utf8(saved.stdout).unwrap();
    assert!(rules.contains("-j KUBE-SERVICES"), "{rules}");
}

fn files_of_others() {
    let folder = Folder::new();
    let file = folder.write("manifest", "a manifest");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    let read = |keep: &'static [Capability]| {
        let path = file.clone();
        let work = move || {
            drop_in_this_thread(keep).unwrap();
            fs::read_to_string(path)
        };
        thread::spawn(work).join().unwrap()
    };
    let error = read(&[Capability::CAP_NET_ADMIN]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    let text = read(&[FILES_OF_OTHERS.capability]).unwrap();
    assert_eq!(text, "a manifest");
}

fn oom_score() {
    drop_capabilities(&[]).unwrap();
    raise_or_lower_oom_score(1000).unwrap();
    let now = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert_eq!(now.trim(), "1000");
    let error = raise_or_lower_oom_score(-999).unwrap_err();
    assert!(matches!(error, OomScoreError::Write { adj: -999, .. }));
    assert!(error.to_string().contains("CAP_SYS_RESOURCE"), "{error}");
}

/// Another user, who still may take the capabilities that root had.
fn become_nobody() {
    caps::securebits::set_keepcaps(true).unwrap();
    // SAFETY: no pointers; this process has no other threads.
    let changed = unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) };
    assert_eq!(changed, 0, "{}", io::Error::last_os_error());
    assert_eq!(Status::of_this_thread().effective, 0);
}

/// Loads the leftovers with one of the tools.
fn restore(tool: &str) {
    let mut child = Command::new(tool)
        .args(["-w", "300"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{tool} is needed: {error}"));
    let mut input = child.stdin.take().unwrap();
    input.write_all(LEFTOVERS.as_bytes()).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success(), "{tool} failed");
}
