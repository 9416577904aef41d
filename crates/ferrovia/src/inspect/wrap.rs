//! Text for a terminal, in lines that can be read.

use std::fmt::Write as _;

/// The width of a line.
const WIDTH: usize = 100;

/// Text behind a label, broken between words; further lines begin where the text does.
pub(crate) fn hanging(label: &str, text: &str) -> String {
    let indent = label.chars().count();
    let mut out = label.to_owned();
    let mut column = indent;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            let _ = write!(out, "\n{:indent$}", "");
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words_and_begin_below_the_first() {
        let text = "word ".repeat(30);
        let lines = hanging("  do  ", &text);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("  do  word word") && lines[1].starts_with("      word"));
        assert!(
            lines
                .iter()
                .all(|line| line.len() <= WIDTH && !line.ends_with(' '))
        );
        // A word that fits nowhere stands alone.
        let long = "x".repeat(2 * WIDTH);
        assert_eq!(
            hanging("", &format!("a {long} b")),
            format!("a\n{long}\nb\n")
        );
    }
}
