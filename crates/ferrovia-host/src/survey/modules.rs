//! Which parts of the kernel are there, could be loaded, or are missing.
//!
//! Nothing is loaded to find out. The lists installed beside the kernel's modules and the folder of loaded modules say it. In
//! a container the lists often cannot be seen.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The lists of modules are of some hundred kilobytes; more is not read.
const LONGEST_LIST: u64 = 16 << 20;

/// Whether a part of the kernel can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModulePresence {
    /// It is built in or loaded.
    There,
    /// It would be loaded when it is needed.
    Loadable,
    /// This kernel does not have it.
    Missing,
    /// It cannot be seen from here.
    Unknown,
}

/// What can be known of the kernel's parts.
#[derive(Clone, Debug)]
pub struct Modules {
    root: PathBuf,
    built_in: Option<String>,
    loadable: Option<String>,
}

impl Modules {
    /// Reads the lists of the kernel that runs.
    pub fn read() -> Self {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Self {
        let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease"));
        let folder = root
            .join("lib/modules")
            .join(release.unwrap_or_default().trim());
        Self {
            root: root.to_owned(),
            built_in: bounded(&folder.join("modules.builtin")),
            loadable: bounded(&folder.join("modules.dep")),
        }
    }

    /// Whether a module can be used.
    pub fn presence(&self, module: &str) -> ModulePresence {
        let lists = |list: &Option<String>| {
            let list = list.as_deref().unwrap_or_default();
            list.lines().any(|line| is_of(line, module))
        };
        let loaded = self.root.join("sys/module").join(module);
        if fs::exists(loaded).unwrap_or(false) || lists(&self.built_in) {
            ModulePresence::There
        } else if lists(&self.loadable) {
            ModulePresence::Loadable
        } else if self.built_in.is_some() && self.loadable.is_some() {
            ModulePresence::Missing
        } else {
            ModulePresence::Unknown
        }
    }
}

/// `kernel/net/netfilter/ipvs/ip_vs.ko.zst: ...` is of `ip_vs`. File names have dashes where modules have underscores.
fn is_of(line: &str, module: &str) -> bool {
    let path = line.split(':').next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    let name = file.split(".ko").next().unwrap_or_default();
    name.replace('-', "_") == module
}

fn bounded(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = fs::File::open(path).ok()?;
    file.take(LONGEST_LIST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_loaded_modules_tell() {
        let root = ferrovia_lab::Folder::new();
        let modules = root.join("lib/modules/6.1.0-test");
        fs::create_dir_all(root.join("proc/sys/kernel")).unwrap();
        fs::create_dir_all(root.join("sys/module/ip_set")).unwrap();
        fs::create_dir_all(&modules).unwrap();
        fs::write(root.join("proc/sys/kernel/osrelease"), "6.1.0-test\n").unwrap();
        let unknown = Modules::below(root.path()).presence("ip_vs");
        fs::write(
            modules.join("modules.builtin"),
            "kernel/drivers/net/veth.ko\n",
        )
        .unwrap();
        let dependencies = "kernel/net/netfilter/ipvs/ip_vs.ko.xz: kernel/lib/crc32c.ko\nkernel/net/netfilter/xt-set.ko:\n";
        fs::write(modules.join("modules.dep"), dependencies).unwrap();
        let known = Modules::below(root.path());
        assert_eq!(unknown, ModulePresence::Unknown);
        assert_eq!(known.presence("veth"), ModulePresence::There);
        assert_eq!(known.presence("ip_vs"), ModulePresence::Loadable);
        assert_eq!(known.presence("xt_set"), ModulePresence::Loadable);
        assert_eq!(known.presence("dummy"), ModulePresence::Missing);
        assert_eq!(known.presence("crc32c"), ModulePresence::Missing);
    }
}
