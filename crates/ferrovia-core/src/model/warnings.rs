//! Collects the warnings about one object while it is parsed.

use super::{Unusable, Warning};
use crate::wire::Kind;

/// The problems of one object. A hostile object can have a hundred thousand; its author needs the first few and the number.
#[derive(Debug)]
pub(crate) struct Warnings<'a> {
    kind: Kind,
    name: &'a str,
    list: Vec<Warning>,
    left_out: usize,
}

impl<'a> Warnings<'a> {
    /// How many problems are listed individually.
    const MAX: usize = 16;

    /// No problems yet with the object of this name.
    pub(crate) fn new(kind: Kind, name: &'a str) -> Self {
        Self {
            kind,
            name,
            list: Vec::new(),
            left_out: 0,
        }
    }

    pub(crate) fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.add_with_detail(field, problem, None);
    }

    /// Adds a warning with a detail that only operators of the node may see.
    pub(crate) fn add_with_detail(
        &mut self,
        field: impl Into<String>,
        problem: impl Into<String>,
        operator_detail: Option<String>,
    ) {
        if self.list.len() == Self::MAX {
            self.left_out += 1;
            return;
        }
        let object = self.object();
        self.list.push(Warning {
            object,
            field: field.into(),
            problem: problem.into(),
            operator_detail,
        });
    }

    /// The reason for an object of which nothing is usable, with the first matching warning as its cause.
    pub(crate) fn nothing_left(self, field: &str, problem: &str) -> Unusable {
        let problem = match self
            .list
            .iter()
            .find(|warning| warning.field.starts_with(field))
        {
            Some(cause) => format!("{problem}: {}: {}", cause.field, cause.problem),
            None => problem.into(),
        };
        Unusable::Broken {
            field: field.into(),
            problem,
        }
    }

    /// All warnings, with a last one that counts those left out.
    pub(crate) fn into_vec(mut self) -> Vec<Warning> {
        if self.left_out > 0 {
            let problem = format!("{} more problems are not listed", self.left_out);
            self.list.push(Warning {
                object: self.object(),
                field: "...".into(),
                problem,
                operator_detail: None,
            });
        }
        self.list
    }

    fn object(&self) -> String {
        format!("{} {}", self.kind.name(), self.name)
    }
}
