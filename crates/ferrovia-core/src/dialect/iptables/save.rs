//! Reading what `iptables-save` prints.
//!
//! Rules stay the text they are: the tools know hundreds of match and target options, and a rule that is deleted has to be repeated to the
//! letter anyway. What is understood is the frame round them (tables, chains, where a rule ends) and how its words are quoted.

use std::borrow::Cow;

/// One table of a saved ruleset, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedTable<'a> {
    /// Its name: `nat`, `filter`, ...
    pub name: &'a str,
    /// Its chains, built-in and user-defined.
    pub chains: Vec<SavedChain<'a>>,
    /// The rules of all its chains.
    pub rules: Vec<SavedRule<'a>>,
}

/// A chain as its table declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedChain<'a> {
    pub name: &'a str,
    /// Whether the kernel sends packets here by itself; such a chain has a policy and cannot be deleted.
    pub built_in: bool,
    /// Its policy is to drop what no rule decides about.
    pub drops: bool,
}

/// A rule, as the text that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedRule<'a> {
    /// The chain it is in.
    pub chain: &'a str,
    /// Its arguments after the chain's name, quoted as they were printed.
    pub args: &'a str,
}

/// The tables of a saved ruleset.
///
/// Lines that are no part of a ruleset are passed over: the tools print comments and warnings between. A table without its `COMMIT` is left
/// out, because then the text is truncated and the rest of the table is unknown.
pub fn parse(save: &str) -> Vec<SavedTable<'_>> {
    let mut tables = Vec::new();
    let mut open: Option<SavedTable<'_>> = None;
    let mut rest = save;
    while !rest.is_empty() {
        // Only rules can go over several lines: nothing else has quoted text.
        let (line, after) = match rule_at(rest) {
            Some(rule) => split_line(rest, rest.len() - rule.len() + rule_length(rule)),
            None => split_line(rest, rest.find('\n').unwrap_or(rest.len())),
        };
        rest = after;
        if let Some(name) = line.strip_prefix('*') {
            open = Some(SavedTable {
                name: name.trim_end(),
                ..SavedTable::default()
            });
        } else if line.trim_end() == "COMMIT" {
            tables.extend(open.take());
        } else if let Some(table) = &mut open {
            table.chains.extend(chain(line));
            table.rules.extend(rule(line));
        }
    }
    tables
}

impl<'a> SavedTable<'a> {
    /// The names of its built-in chains: five at most, so a list to look through.
    pub(crate) fn built_in(&self) -> Vec<&'a str> {
        let chains = self.chains.iter().filter(|chain| chain.built_in);
        chains.map(|chain| chain.name).collect()
    }
}

impl<'a> SavedRule<'a> {
    /// The names the rule may jump or go to.
    ///
    /// A rule has one target at most, but which options of which match take a value is only known to the tool: where a comment reads `-j`,
    /// the word after it is given as well. That word is never the name of a chain, because the text that follows a value is an option.
    pub fn targets(&self) -> impl Iterator<Item = Cow<'a, str>> {
        let mut words = SavedWords { rest: self.args };
        std::iter::from_fn(move || {
            words.find(|word| word == "-j" || word == "-g")?;
            // The iterator is cloned to look ahead: in `--comment -j -j NAME` the second `-j` is both a word after one and the target's own.
            Some(words.clone().next().unwrap_or_default())
        })
    }

    /// Whether `iptables-restore` would understand the rule as it was printed.
    ///
    /// A comment may hold a line break, and the saving tool prints it as it is; the restoring tool reads line by line and cannot take it
    /// back. Nor can bytes be repeated that were lost in decoding the text.
    pub fn is_repeatable(&self) -> bool {
        !self.args.contains(['\n', char::REPLACEMENT_CHARACTER])
    }
}

/// A rule's arguments in the one spelling that [`IptablesRule`](super::IptablesRule) prints.
///
/// Versions of the tools differ in two points: whether a comment of one word is quoted, and in a second space after `--nfacct-name`.
pub fn canonical(args: &str) -> Cow<'_, str> {
    const COMMENT: &str = "--comment ";
    let bare_comment = args
        .split_once(COMMENT)
        .is_some_and(|(_, value)| !value.starts_with('"'));
    if !bare_comment && !args.contains("  ") {
        return Cow::Borrowed(args);
    }
    let mut text = String::with_capacity(args.len() + 2);
    let mut rest = args.trim_matches(' ');
    while !rest.is_empty() {
        let (word, after) = rest.split_at(word_length(rest));
        if text.ends_with(COMMENT) && !word.starts_with('"') {
            text.extend(["\"", word, "\""]);
        } else {
            text.push_str(word);
        }
        rest = after.trim_start_matches([' ', '\n']);
        if !rest.is_empty() {
            text.push(' ');
        }
    }
    Cow::Owned(text)
}

/// The words of a rule's arguments without their quotes.
#[derive(Clone)]
struct SavedWords<'a> {
    rest: &'a str,
}

impl<'a> Iterator for SavedWords<'a> {
    type Item = Cow<'a, str>;

    fn next(&mut self) -> Option<Self::Item> {
        // Line breaks too: one outside of quotes would otherwise be an endless empty word.
        let text = self.rest.trim_start_matches([' ', '\n']);
        if text.is_empty() {
            return None;
        }
        let (word, rest) = text.split_at(word_length(text));
        self.rest = rest;
        Some(unquoted(word))
    }
}

/// A quoted word without its quotes and escapes; any other word as it is.
fn unquoted(word: &str) -> Cow<'_, str> {
    let Some(inner) = word.strip_prefix('"') else {
        return Cow::Borrowed(word);
    };
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    Cow::Owned(plain)
}

/// How long the word is that the text starts with, quotes included.
///
/// The saving tool puts a quote only round a whole word, so one in the middle of a word is a character like others.
fn word_length(text: &str) -> usize {
    if !text.starts_with('"') {
        return text.find([' ', '\n']).unwrap_or(text.len());
    }
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// How long the rule is that the text starts with: up to the first line break outside of quotes.
fn rule_length(text: &str) -> usize {
    let mut rest = text;
    while !rest.is_empty() && !rest.starts_with('\n') {
        let word = if rest.starts_with(' ') {
            1
        } else {
            word_length(rest)
        };
        rest = rest.get(word..).unwrap_or_default();
    }
    text.len() - rest.len()
}

/// Cuts a text at the end of a line and takes the line break away.
fn split_line(text: &str, end: usize) -> (&str, &str) {
    let (line, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    (line, rest.strip_prefix('\n').unwrap_or(rest))
}

/// A line such as `:KUBE-SERVICES - [0:0]`: name, policy (`-` for a user-defined chain), counters.
fn chain(line: &str) -> Option<SavedChain<'_>> {
    let (name, rest) = line.strip_prefix(':')?.split_once(' ')?;
    let policy = rest.split(' ').next()?;
    Some(SavedChain {
        name,
        built_in: policy != "-",
        drops: policy == "DROP",
    })
}

/// A line such as `-A INPUT -j DROP`. The chain's name is printed without quotes, whatever it holds.
fn rule(line: &str) -> Option<SavedRule<'_>> {
    let text = rule_at(line)?.strip_prefix("-A ")?;
    let (chain, args) = text.split_once(' ').unwrap_or((text, ""));
    Some(SavedRule { chain, args })
}

/// The text from `-A` on, if a rule starts here. Saved with counters, they stand before: `[12:3400] -A INPUT`.
fn rule_at(text: &str) -> Option<&str> {
    let text = match text.strip_prefix('[') {
        // Nothing else is looked for a bracket that closes: every line would be, to the end of the text.
        Some(counters) => counters
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == ':')
            .strip_prefix("] ")?,
        None => text,
    };
    text.starts_with("-A ").then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(args: &str) -> Vec<String> {
        SavedRule {
            chain: "INPUT",
            args,
        }
        .targets()
        .map(Cow::into_owned)
        .collect()
    }

    #[test]
    fn a_line_break_outside_of_quotes_ends_a_word() {
        // A quote at the beginning of a chain's name, with a blank and a line break inside.
        let tables = parse("*nat\n-A \"a b\nc\" -j D\nCOMMIT\n");
        let rule = tables[0].rules[0];
        assert_eq!(rule.targets().collect::<Vec<_>>(), ["D"]);
    }

    #[test]
    fn counters_end_on_their_line() {
        let save = "*nat\n[1:2] -A A -j B\n[3\n4] -A C -j D\n[x] -A E -j F\nCOMMIT\n";
        let tables = parse(save);
        let chains: Vec<_> = tables[0].rules.iter().map(|rule| rule.chain).collect();
        assert_eq!(chains, ["A"]);
    }

    #[test]
    fn tables_chains_and_rules_are_distinguished() {
        let save = "# Generated by a tool\n*nat\n:PREROUTING DROP [1:60]\n:MINE - [0:0]\n\
                    -A PREROUTING -p tcp -j MINE\n[3:180] -A MINE\nCOMMIT\n# Warning: more elsewhere\n\
                    *raw\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
        let tables = parse(save);
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].name, "nat");
        let chains = [("PREROUTING", true, true), ("MINE", false, false)];
        assert_eq!(
            tables[0].chains,
            chains.map(|(name, built_in, drops)| SavedChain {
                name,
                built_in,
                drops
            })
        );
        assert!(!tables[1].chains[0].drops);
        let rules = [("PREROUTING", "-p tcp -j MINE"), ("MINE", "")];
        assert_eq!(
            tables[0].rules,
            rules.map(|(chain, args)| SavedRule { chain, args })
        );
        assert_eq!((tables[1].name, tables[1].rules.len()), ("raw", 0));
    }

    #[test]
    fn a_table_cut_off_is_left_out() {
        let save = "*raw\nCOMMIT\n*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m comment --comment \"x";
        let names: Vec<_> = parse(save).iter().map(|table| table.name).collect();
        assert_eq!(names, ["raw"]);
    }

    #[test]
    fn a_line_break_in_quotes_does_not_end_the_rule() {
        let save = "*filter\n:INPUT ACCEPT [0:0]\n\
                    -A INPUT -m comment --comment \"a \\\" b\nCOMMIT\n-A INPUT -j EVIL\" -j GOOD\n-A INPUT -j LAST\nCOMMIT\n";
        let tables = parse(save);
        let rules = &tables[0].rules;
        assert_eq!(rules.len(), 2, "{rules:?}");
        assert_eq!(rules[0].targets().collect::<Vec<_>>(), ["GOOD"]);
        assert!(!rules[0].is_repeatable() && rules[1].is_repeatable());
    }

    #[test]
    fn a_target_is_found_among_hostile_comments() {
        assert_eq!(targets("-p tcp -j ONE --to-ports 1"), ["ONE"]);
        assert_eq!(targets("-g TWO"), ["TWO"]);
        assert_eq!(
            targets(r#"-m comment --comment "-j THREE" -j FOUR"#),
            ["FOUR"]
        );
        assert_eq!(
            targets(r#"-m comment --comment "\"-j\" \\" -j FIVE"#),
            ["FIVE"]
        );
        assert_eq!(targets(r#"-m comment --comment mid"quote -j SIX"#), ["SIX"]);
        assert_eq!(targets("-m comment --comment -j -j SEVEN"), ["-j", "SEVEN"]);
        assert_eq!(targets("-m comment --comment -j"), [""]);
        assert_eq!(targets("-p udp"), [""; 0]);
    }

    #[test]
    fn spellings_of_different_versions_become_one() {
        let ours =
            r#"-d 127.0.0.0/8 -m comment --comment "ns1/svc1:p80" -m nfacct --nfacct-name x -j Y"#;
        let theirs = [
            ours,
            r#"-d 127.0.0.0/8 -m comment --comment "ns1/svc1:p80" -m nfacct --nfacct-name  x -j Y"#,
            "-d 127.0.0.0/8 -m comment --comment ns1/svc1:p80 -m nfacct --nfacct-name x -j Y",
        ];
        for text in theirs {
            assert_eq!(canonical(text), ours);
        }
        assert_eq!(
            canonical(r#"--comment "a  b" -j  X"#),
            r#"--comment "a  b" -j X"#
        );
    }

    #[test]
    fn quotes_and_escapes_are_taken_off() {
        let words = SavedWords {
            rest: r#"-m  "two words" "" "a\\b\"c\'d" "open"#,
        };
        assert_eq!(
            words.collect::<Vec<_>>(),
            ["-m", "two words", "", r#"a\b"c'd"#, "open"]
        );
    }

    proptest::proptest! {
        /// Whatever the text is, reading it neither panics nor hangs.
        #[test]
        fn any_text_can_be_read(save in "(\\*nat\n|COMMIT\n|:A - |-A A |\"|\\\\|\n| |-j|é|\\PC){0,40}") {
            for table in parse(&save) {
                for rule in &table.rules {
                    let once = canonical(rule.args);
                    proptest::prop_assert!(canonical(&once) == once);
                    proptest::prop_assert!(rule.targets().count() <= rule.args.len());
                }
            }
        }
    }
}
