//! The page of security cases is true: every test it names is there.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_test_that_the_page_names_exists() {
    let page = fs::read_to_string(root().join("docs/security-cases.md")).unwrap();
    let mut count = 0;
    for word in page.split('`').skip(1).step_by(2) {
        if let Some((file, test)) = word
            .split_once("::")
            .filter(|(file, _)| file.ends_with(".rs"))
        {
            let text = fs::read_to_string(root().join("crates").join(file))
                .unwrap_or_else(|error| panic!("{word}: {error}"));
            assert!(text.contains(&format!("fn {test}(")), "{word} is not there");
            count += 1;
        } else if word.ends_with(".case") {
            assert!(
                root().join("tests/cases").join(word).is_file(),
                "{word} is not there"
            );
            count += 1;
        }
    }
    assert!(count > 30, "the page names only {count} tests");
    // A row without a test has a reason.
    for row in page.lines().filter(|line| line.starts_with("| **")) {
        let last = row
            .trim_end_matches('|')
            .rsplit('|')
            .next()
            .unwrap_or_default()
            .trim();
        assert!(
            last.contains('`') || last.len() > 40,
            "no test and no reason: {row}"
        );
    }
}
