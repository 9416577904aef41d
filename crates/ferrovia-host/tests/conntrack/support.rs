//! What is in a namespace's tables, and how much memory a thread takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;

use ferrovia_core::family::Family;
use ferrovia_host::conntrack::{FlowReader, SentTo};
pub(crate) use ferrovia_lab::namespace::{drop_privileges, in_namespace, run};

/// A file in a folder that is mounted read-only, for this thread alone.
pub(crate) fn read_only_folder(file: &str, text: &str) -> PathBuf {
    // SAFETY: no pointers; affects this thread only.
    let made = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    run("mount --make-rprivate /");
    let folder = PathBuf::from("/mnt");
    run("mount -t tmpfs none /mnt");
    let file = folder.join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
    run("mount -o remount,ro /mnt");
    folder
}

/// The UDP flows of a family: where they were sent and who answers, sorted.
pub(crate) fn udp_flows(family: Family) -> Vec<(SocketAddr, SocketAddr)> {
    let mut flows = Vec::new();
    FlowReader::open()
        .unwrap()
        .each(family, SentTo::Anywhere, |flow| {
            flows.push((flow.sent_to, flow.answered_by));
        })
        .unwrap();
    flows.sort_unstable();
    flows
}

/// How many entries there are of all protocols and families.
pub(crate) fn entries() -> usize {
    number("/proc/sys/net/netfilter/nf_conntrack_count")
}

/// How many entries a namespace may have. It is the whole machine's setting, so tests make do with it.
pub(crate) fn room() -> usize {
    number("/proc/sys/net/netfilter/nf_conntrack_max")
}

fn number(path: &str) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim().parse().unwrap()
}

/// The most memory this thread held at a time while a closure ran, beyond what it held before.
pub(crate) fn peak_memory(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    work();
    usize::try_from(PEAK.get() - before).unwrap_or(0)
}

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts what each thread asks for.
struct Counting;

impl Counting {
    fn count(bytes: isize) {
        // Threads that are ending have nothing to count with any more.
        let _ = HELD.try_with(|held| held.set(held.get() + bytes));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(HELD.get())));
    }
}

// SAFETY: memory is the system allocator's business, to which every call is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Self::count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
