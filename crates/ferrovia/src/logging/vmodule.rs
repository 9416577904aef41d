//! `--vmodule`: more from some source files, by patterns of their names.

/// How much one source file, or several, may say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVerbosity {
    /// The file's name without its ending, `*` for any characters and `?` for one. With a `/` in it the pattern is for the whole path.
    pub pattern: String,
    /// Like `-v`, for these files.
    pub verbosity: u32,
}

/// What the first pattern that matches a source file says.
pub(super) fn level_for(files: &[FileVerbosity], path: &str) -> Option<u32> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    let found = files.iter().find(|file| {
        let subject = if file.pattern.contains('/') {
            path
        } else {
            name
        };
        matches(file.pattern.as_bytes(), subject.as_bytes())
    });
    found.map(|file| file.verbosity)
}

/// Whether a text is what the pattern says. Takes at most the product of the two lengths in steps: when a text does not fit, only the last
/// `*` is tried with one character more.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else {
                    return false;
                };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The level for a path by a list such as `engine=4,nft*=2`.
    fn level(list: &str, path: &str) -> Option<u32> {
        let entries = list.split(',').filter_map(|entry| entry.split_once('='));
        let files: Vec<FileVerbosity> = entries
            .map(|(pattern, verbosity)| FileVerbosity {
                pattern: pattern.to_owned(),
                verbosity: verbosity.parse().unwrap(),
            })
            .collect();
        level_for(&files, path)
    }

    #[test]
    fn a_pattern_is_for_the_name_without_its_ending() {
        let path = "crates/ferrovia/src/sync/engine.rs";
        assert_eq!(level("engine=4", path), Some(4));
        assert_eq!(level("eng*=5", path), Some(5));
        assert_eq!(level("*=5", path), Some(5));
        assert_eq!(level("engin?=6", path), Some(6));
        assert_eq!(level("e*i*e=6", path), Some(6));
        assert_eq!(level("engine.rs=4", path), None);
        assert_eq!(level("engin=4", path), None);
        assert_eq!(level("engine?=4", path), None);
        assert_eq!(level("sync=4", path), None);
        assert_eq!(level("", path), None);
    }

    #[test]
    fn with_a_slash_a_pattern_is_for_the_whole_path() {
        let path = "crates/ferrovia/src/sync/mod.rs";
        assert_eq!(level("*/sync/mod=4", path), Some(4));
        assert_eq!(level("*/sync/*=4", path), Some(4));
        assert_eq!(level("sync/mod=4", path), None);
    }

    #[test]
    fn the_first_match_counts() {
        assert_eq!(level("a*=2,ab=9", "ab.rs"), Some(2));
        assert_eq!(level("ab=9,a*=2", "ab.rs"), Some(9));
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = "*a".repeat(100);
        assert!(!matches(pattern.as_bytes(), "a".repeat(99).as_bytes()));
        assert!(matches(pattern.as_bytes(), "a".repeat(5000).as_bytes()));
    }
}
