//! What `iptables-restore --noflush` is given: sections, each of which the tool writes as one transaction on one table.

use std::fmt::{self, Write as _};

use super::placeholder::fill_in;

/// A table of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableName {
    /// Where packets are let through or not.
    Filter,
    /// Where destinations and sources are rewritten.
    Nat,
    /// Nearly always empty, and so the cheapest to look into.
    Mangle,
}

impl TableName {
    /// Those we write to.
    pub const ALL: [Self; 3] = [Self::Filter, Self::Nat, Self::Mangle];

    /// Its name in the tools' language.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Mangle => "mangle",
        }
    }
}

/// A number of rules in each of the tables that hold any of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCount {
    pub filter: usize,
    pub nat: usize,
}

impl RuleCount {
    /// The number for a table; none for one that holds no rules of ours.
    pub fn of(&mut self, table: TableName) -> Option<&mut usize> {
        match table {
            TableName::Filter => Some(&mut self.filter),
            TableName::Nat => Some(&mut self.nat),
            TableName::Mangle => None,
        }
    }

    /// More rules in a table.
    pub fn add(&mut self, table: TableName, rules: usize) {
        if let Some(count) = self.of(table) {
            *count += rules;
        }
    }

    /// Fewer rules in a table.
    pub fn remove(&mut self, table: TableName, rules: usize) {
        if let Some(count) = self.of(table) {
            *count = count.saturating_sub(rules);
        }
    }
}

/// An input for the restoring tool. Prints as that input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    sections: Vec<RestoreSection>,
    /// How many rules of ours there are once it is written.
    pub in_force: RuleCount,
    /// What people should know about it.
    pub notes: Vec<String>,
}

impl Restore {
    /// Adds a section; an empty one is left out.
    pub fn push(&mut self, section: RestoreSection) {
        if !section.is_empty() {
            self.sections.push(section);
        }
    }

    /// There is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// How many rules it adds.
    pub fn written(&self) -> RuleCount {
        let mut written = RuleCount::default();
        for section in &self.sections {
            written.add(section.table, section.lines.lines().count());
        }
        written
    }

    /// The same with numbers in the place of names of ports; lines that name a port without a number are left out.
    #[must_use]
    pub fn with_ports(&self, number: impl Fn(&str) -> Option<u16>) -> Self {
        let mut filled = Self {
            sections: Vec::new(),
            in_force: self.in_force,
            notes: self.notes.clone(),
        };
        for section in &self.sections {
            filled.push(section.with_ports(&number));
        }
        filled
    }

    /// The transactions, in order.
    pub fn sections(&self) -> &[RestoreSection] {
        &self.sections
    }
}

impl fmt::Display for Restore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sections.iter().try_for_each(|section| section.fmt(f))
    }
}

/// One transaction. Kept as text from the beginning: a big one holds a hundred thousand lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreSection {
    table: TableName,
    chains: String,
    /// Rules that go. Before those that come, because the tool removes the first copy of a rule it finds.
    gone: String,
    lines: String,
    gone_chains: String,
}

impl RestoreSection {
    /// One that does nothing yet.
    pub fn new(table: TableName) -> Self {
        Self {
            table,
            chains: String::new(),
            gone: String::new(),
            lines: String::new(),
            gone_chains: String::new(),
        }
    }

    /// The table it is about.
    pub fn table(&self) -> TableName {
        self.table
    }

    pub fn is_empty(&self) -> bool {
        self.parts().into_iter().all(String::is_empty)
    }

    /// Makes a chain, or empties the one that is there. Comes before all rules, so that they can jump to it.
    pub fn declare(&mut self, chain: &str) {
        line(&mut self.chains, format_args!(":{chain} - [0:0]"));
    }

    /// Makes a chain that has these rules and no others.
    pub fn fill(&mut self, chain: &str, rules: &[String]) {
        self.declare(chain);
        for rule in rules {
            self.append(chain, rule);
        }
    }

    /// Adds a rule at the end of a chain.
    pub fn append(&mut self, chain: &str, rule: &str) {
        line(&mut self.lines, format_args!("-A {chain} {rule}"));
    }

    /// Adds a rule at the head of a chain.
    pub fn insert(&mut self, chain: &str, rule: &str) {
        line(&mut self.lines, format_args!("-I {chain} {rule}"));
    }

    /// Removes one copy of a rule that was there before.
    pub fn delete(&mut self, chain: &str, rule: &str) {
        line(&mut self.gone, format_args!("-D {chain} {rule}"));
    }

    /// Removes an empty chain that nothing jumps to any more, after all else.
    pub fn delete_chain(&mut self, chain: &str) {
        line(&mut self.gone_chains, format_args!("-X {chain}"));
    }

    fn with_ports(&self, number: &impl Fn(&str) -> Option<u16>) -> Self {
        let fill = |part: &String| {
            let mut text = String::with_capacity(part.len());
            for filled in part.lines().filter_map(|line| fill_in(line, number)) {
                line(&mut text, format_args!("{filled}"));
            }
            text
        };
        Self {
            table: self.table,
            chains: self.chains.clone(),
            gone: fill(&self.gone),
            lines: fill(&self.lines),
            gone_chains: self.gone_chains.clone(),
        }
    }

    fn parts(&self) -> [&String; 4] {
        [&self.chains, &self.gone, &self.lines, &self.gone_chains]
    }
}

fn line(text: &mut String, words: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(words);
    text.push('\n');
}

impl fmt::Display for RestoreSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*{}", self.table.as_str())?;
        self.parts()
            .into_iter()
            .try_for_each(|part| f.write_str(part))?;
        writeln!(f, "COMMIT")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_come_before_rules_and_go_after_them() {
        let mut section = RestoreSection::new(TableName::Nat);
        section.delete_chain("OLD");
        section.insert("KUBE-SERVICES", "-j NEW");
        section.declare("OLD");
        section.delete("KUBE-SERVICES", "-j OLD");
        section.fill("NEW", &["-j ACCEPT".into()]);
        let mut restore = Restore::default();
        restore.push(section);
        restore.push(RestoreSection::new(TableName::Filter));
        assert_eq!(
            restore.to_string(),
            "*nat\n:OLD - [0:0]\n:NEW - [0:0]\n-D KUBE-SERVICES -j OLD\n-I KUBE-SERVICES -j NEW\n-A NEW -j ACCEPT\n-X OLD\nCOMMIT\n"
        );
        assert_eq!(restore.written(), RuleCount { filter: 0, nat: 2 });
    }
}
