//! User-mode Linux on processors whose register state is larger than it knows.
//!
//! With AMX the state is 11 KiB. The host kernel accepts only a whole state from `PTRACE_SETREGSET`, and user-mode Linux 6.1 sets the part
//! it knows: the guest dies at its first process (`ptrace set fp regs failed, errno = 14`). `xstate.c` wraps `ptrace` to set the whole state.
//! It is C because a library that is loaded before libc's functions cannot bring Rust's runtime, and it is compiled here because every Rust
//! toolchain for Linux needs `cc` anyway.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("xstate.c");

/// Whether this machine's processor needs it.
pub(super) fn is_needed() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| has_large_state(&text))
}

fn has_large_state(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "amx_tile"))
}

/// Compiles the library into this folder, for `LD_PRELOAD`.
pub(super) fn build(folder: &Path) -> io::Result<PathBuf> {
    let (source, library) = (folder.join("xstate.c"), folder.join("xstate.so"));
    fs::write(&source, SOURCE)?;
    let compiler = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .output()?;
    if compiler.status.success() {
        return Ok(library);
    }
    let said = String::from_utf8_lossy(&compiler.stderr);
    Err(io::Error::other(format!("cc failed: {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_processors_with_amx() {
        assert!(has_large_state(
            "processor: 0\nflags\t\t: fpu amx_tile avx\n"
        ));
        assert!(!has_large_state("processor: 0\nflags\t\t: fpu avx512f\n"));
        assert!(!has_large_state(""));
    }

    #[test]
    fn compiles() {
        let folder = crate::folder::Folder::make().unwrap();
        assert!(build(folder.path()).unwrap().exists());
    }
}
