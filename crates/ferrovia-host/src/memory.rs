//! The allocator's habits.
#![allow(
    unsafe_code,
    reason = "the allocator can only be configured by a call into the C library"
)]

/// From this size on, a block has pages of its own, which go back to the system when it is freed.
#[cfg(target_env = "gnu")]
const OWN_PAGES_FROM: libc::c_int = 128 * 1024;

/// Makes the C library keep little. To be called before there are other threads.
///
/// Big blocks are given back for good. By default it learns from every big block that is freed to keep the next one of that size; a proxy
/// has few of them, all at its first full sync, and would hold that memory forever.
///
/// All threads share one heap. With one each, what a thread read and another freed lies in the reader's heap between the little that is
/// kept, where no one else can use it. Few threads are busy at a time, so they seldom wait for each other.
pub fn keep_small() {
    // SAFETY: sets numbers inside the allocator, which it guards by its own lock.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES_FROM);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives freed memory back to the system, of all threads. For the moment after a great deal was read and most of it thrown away.
pub fn give_back() {
    // SAFETY: looks at nothing but the allocator's own lists, under its own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
