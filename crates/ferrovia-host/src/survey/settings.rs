//! Kernel settings as the text they are, for those that hold more than a number or are one of many of a kind.

use std::fs;
use std::io;
use std::path::Path;

/// A setting, named by its file below `/proc/sys`.
///
/// # Errors
/// If there is none of that name, or it cannot be read.
pub fn read(name: &str) -> io::Result<String> {
    let text = fs::read_to_string(Path::new("/proc/sys").join(name))?;
    Ok(text.trim().to_owned())
}

/// A setting that every interface has: the interface with its value, in order of name. `all` and `default` are among them.
pub fn of_interfaces(folder: &str, name: &str) -> Vec<(String, String)> {
    let root = Path::new("/proc/sys").join(folder);
    let Ok(entries) = fs::read_dir(&root) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let value = fs::read_to_string(entry.path().join(name)).ok()?;
            let interface = super::printable(&entry.file_name().to_string_lossy());
            Some((interface, value.trim().to_owned()))
        })
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_by_name_and_by_interface() {
        assert!(!read("kernel/osrelease").unwrap().is_empty());
        assert!(read("kernel/no-such-setting").is_err());
        let all = of_interfaces("net/ipv4/conf", "rp_filter");
        assert!(all.iter().any(|(name, _)| name == "all"), "{all:?}");
        assert_eq!(of_interfaces("net/nowhere", "rp_filter"), []);
    }
}
