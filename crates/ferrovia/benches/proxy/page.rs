//! The page that a run writes: its sections, pictures of them, and one picture across all modes.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::plot::{Bar, Bars};
use crate::show::show;

const SIDE_BY_SIDE: &str = "
## 10,000 × 2, side by side

The change is an endpoint replaced, until the new one answers. Of kube-proxy's shape it is a service more until `nft -f` ends, without \
kube-proxy's own work before that.

";

/// The text, and the pictures it shows.
pub(crate) struct Page {
    text: String,
    /// File name and content.
    pictures: Vec<(String, String)>,
    modes: Vec<Mode>,
}

/// What a mode takes at the size in which modes are compared.
pub(crate) struct Mode {
    pub(crate) name: String,
    /// To write everything.
    pub(crate) load: Duration,
    /// A change, until it is in force.
    pub(crate) change: Duration,
}

impl Page {
    pub(crate) fn new(head: String) -> Self {
        Self {
            text: head,
            pictures: Vec::new(),
            modes: Vec::new(),
        }
    }

    /// Adds to the text.
    pub(crate) fn write(&mut self, text: &str) {
        self.text += text;
    }

    /// Shows a picture here.
    pub(crate) fn picture(&mut self, name: &str, about: &str, svg: String) {
        let file = format!("performance-{name}.svg");
        self.text += &format!("![{about}](images/{file})\n\n");
        self.pictures.push((file, svg));
    }

    /// Remembers a mode for the comparison.
    pub(crate) fn compare(&mut self, mode: Mode) {
        self.modes.push(mode);
    }

    /// Compares the modes that were measured, if there are several.
    pub(crate) fn close(&mut self) {
        if self.modes.len() < 2 {
            return;
        }
        self.write(SIDE_BY_SIDE);
        let bars = |title, figure: fn(&Mode) -> Duration| Bars {
            title,
            bars: self.modes.iter().map(|mode| bar(mode, figure)).collect(),
        };
        let load = bars("All services written", |mode| mode.load).svg();
        let change = bars("One change, until it is in force", |mode| mode.change).svg();
        self.picture("load", "Time to write all services, by mode", load);
        self.picture("change", "Time of one change, by mode", change);
    }

    /// The text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Writes all of it to the folder `bench` in Cargo's target folder.
    pub(crate) fn keep(&self) -> anyhow::Result<()> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .context("Cargo's folder for temporary files has no parent")?;
        let folder = target.join("bench");
        let images = folder.join("images");
        std::fs::create_dir_all(&images)
            .with_context(|| format!("cannot make {}", images.display()))?;
        let keep = |file: &Path, content: &str| {
            std::fs::write(file, content)
                .with_context(|| format!("cannot write {}", file.display()))
        };
        for (name, svg) in &self.pictures {
            keep(&images.join(name), svg)?;
        }
        let file = folder.join("proxy.md");
        keep(&file, &self.text)?;
        eprintln!("written to {}", file.display());
        Ok(())
    }
}

fn bar(mode: &Mode, figure: fn(&Mode) -> Duration) -> Bar {
    Bar {
        name: mode.name.clone(),
        length: figure(mode).as_secs_f64(),
        label: show(figure(mode)),
    }
}
