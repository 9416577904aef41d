//! The numbers, and what happens where they cannot be written.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

use ferrovia_host::sysctl::Files;

use super::*;

const NOTHING: ConntrackSettings = ConntrackSettings {
    max: None,
    max_per_core: 0,
    min: 0,
    tcp_established: None,
    tcp_close_wait: None,
    be_liberal: false,
    udp: Duration::ZERO,
    udp_stream: Duration::ZERO,
};

/// A kernel whose settings are numbers, some of which cannot be written.
struct Kernel {
    values: RefCell<BTreeMap<Setting, u64>>,
    obstacles: BTreeMap<Setting, i32>,
    writes: RefCell<Vec<(Setting, u64)>>,
}

impl Kernel {
    fn new(max: u64, lists: u64) -> Self {
        let others = [
            (Setting::TCP_ESTABLISHED, 432_000),
            (Setting::TCP_CLOSE_WAIT, 60),
            (Setting::TCP_BE_LIBERAL, 0),
            (Setting::UDP, 30),
            (Setting::UDP_STREAM, 120),
        ];
        let mut values = BTreeMap::from(others);
        values.insert(Setting::CONNTRACK_MAX, max);
        values.insert(Setting::CONNTRACK_HASH_SIZE, lists);
        Self {
            values: RefCell::new(values),
            obstacles: BTreeMap::new(),
            writes: RefCell::default(),
        }
    }

    fn with(mut self, setting: Setting, errno: i32) -> Self {
        self.obstacles.insert(setting, errno);
        self
    }

    fn error(setting: Setting, writing: bool, errno: i32) -> Error {
        let obstacle = match errno {
            libc::EROFS => Obstacle::ReadOnly,
            libc::ENOENT => Obstacle::Missing,
            _ => Obstacle::Denied,
        };
        Error {
            path: setting.path(),
            writing,
            obstacle,
            cause: io::Error::from_raw_os_error(errno),
        }
    }
}

impl Settings for Kernel {
    fn read(&self, setting: Setting) -> Result<u64, Error> {
        match self.obstacles.get(&setting) {
            Some(&libc::ENOENT) => Err(Self::error(setting, false, libc::ENOENT)),
            _ => Ok(self.values.borrow()[&setting]),
        }
    }

    fn write(&self, setting: Setting, value: u64) -> Result<(), Error> {
        if let Some(errno) = self.obstacles.get(&setting) {
            return Err(Self::error(setting, true, *errno));
        }
        self.writes.borrow_mut().push((setting, value));
        self.values.borrow_mut().insert(setting, value);
        Ok(())
    }
}

#[test]
fn the_limit_grows_with_processors_up_to_a_cap() {
    let limit = |max_per_core, min, cpus| {
        let settings = ConntrackSettings {
            max_per_core,
            min,
            ..NOTHING
        };
        settings.limit(cpus)
    };
    assert_eq!(limit(32768, 131_072, 2), Some(131_072));
    assert_eq!(limit(32768, 131_072, 8), Some(262_144));
    assert_eq!(limit(32768, 131_072, 32), Some(1_048_576));
    assert_eq!(limit(32768, 131_072, 512), Some(1_048_576));
    assert_eq!(limit(1, 123_456, 4), Some(123_456));
    assert_eq!(limit(1, 2_000_000, 4), Some(2_000_000), "min has no cap");
    assert_eq!(limit(32768, 2_000_000, 64), Some(1_048_576), "the cap hits");
    assert_eq!(limit(u32::MAX, 0, usize::MAX), Some(1_048_576));
    assert_eq!(limit(0, 123_456, 4), None);
}

#[test]
fn a_limit_that_is_said_outright_goes_before_all() {
    let limit = |max| {
        let settings = ConntrackSettings {
            max: Some(max),
            max_per_core: 32768,
            min: 131_072,
            ..NOTHING
        };
        settings.limit(4)
    };
    assert_eq!(limit(5_000_000), Some(5_000_000));
    assert_eq!(limit(1_000), Some(1_000));
    assert_eq!(limit(0), None, "leave it alone");
}

#[test]
fn only_what_differs_is_written() {
    let settings = ConntrackSettings {
        max_per_core: 32768,
        min: 131_072,
        tcp_established: Some(Duration::from_secs(86_400)),
        tcp_close_wait: Some(Duration::from_secs(60)),
        be_liberal: true,
        udp: Duration::from_millis(300),
        udp_stream: Duration::from_millis(120_900),
        ..NOTHING
    };
    let kernel = Kernel::new(65_536, 16_384);
    assert!(apply(&settings, 4, &kernel).is_empty());
    let written = [
        (Setting::CONNTRACK_MAX, 131_072),
        (Setting::CONNTRACK_HASH_SIZE, 32_768),
        (Setting::TCP_ESTABLISHED, 86_400),
        (Setting::TCP_BE_LIBERAL, 1),
        (Setting::UDP, 1),
    ];
    assert_eq!(*kernel.writes.borrow(), written);
    kernel.writes.borrow_mut().clear();
    assert!(apply(&settings, 4, &kernel).is_empty());
    assert_eq!(*kernel.writes.borrow(), []);
    assert!(apply(&NOTHING, 4, &kernel).is_empty());
    assert_eq!(*kernel.writes.borrow(), []);
}

#[test]
fn a_larger_limit_is_lowered_and_that_is_said_but_no_table_shrinks() {
    let settings = ConntrackSettings {
        max: Some(100_000),
        ..NOTHING
    };
    let kernel = Kernel::new(4_000_000, 1_000_000);
    let findings = apply(&settings, 4, &kernel);
    assert_eq!(*kernel.writes.borrow(), [(Setting::CONNTRACK_MAX, 100_000)]);
    let [finding] = &findings[..] else {
        panic!("{findings:?}")
    };
    assert!(finding.to_string().contains("from 4000000 to 100000"));
    assert!(finding.notice().is_none());
}

#[test]
fn what_can_be_done_is_done_and_the_rest_is_told() {
    let settings = ConntrackSettings {
        max: Some(262_144),
        udp: Duration::from_secs(40),
        ..NOTHING
    };
    let cases = [
        (Setting::CONNTRACK_MAX, libc::EROFS, "readOnlySysFS"),
        (
            Setting::CONNTRACK_MAX,
            libc::EACCES,
            "ConntrackLimitsNotSet",
        ),
        (Setting::CONNTRACK_HASH_SIZE, libc::EROFS, "readOnlySysFS"),
        (
            Setting::CONNTRACK_HASH_SIZE,
            libc::ENOENT,
            "ConntrackLimitsNotSet",
        ),
        (Setting::UDP, libc::EROFS, "readOnlySysFS"),
    ];
    let all = [
        (Setting::CONNTRACK_MAX, 262_144),
        (Setting::CONNTRACK_HASH_SIZE, 65_536),
        (Setting::UDP, 40),
    ];
    for (setting, errno, reason) in cases {
        let kernel = Kernel::new(65_536, 16_384).with(setting, errno);
        let findings = apply(&settings, 4, &kernel);
        let possible: Vec<_> = all.into_iter().filter(|(it, _)| *it != setting).collect();
        assert_eq!(*kernel.writes.borrow(), possible, "{setting:?} {errno}");
        let [finding] = &findings[..] else {
            panic!("{findings:?}")
        };
        let notice = finding.notice().unwrap();
        assert_eq!((notice.reason, notice.regarding), (reason, Regarding::Node));
        let wanted = all.iter().find(|(it, _)| *it == setting).unwrap().1;
        assert!(
            notice.note.contains(&setting.command(wanted)),
            "{}",
            notice.note
        );
    }
}

#[test]
fn a_value_that_is_right_already_needs_no_rights() {
    let settings = ConntrackSettings {
        max: Some(262_144),
        ..NOTHING
    };
    let kernel = Kernel::new(262_144, 65_536)
        .with(Setting::CONNTRACK_MAX, libc::EROFS)
        .with(Setting::CONNTRACK_HASH_SIZE, libc::EROFS);
    assert!(apply(&settings, 4, &kernel).is_empty());
}

#[test]
fn files_are_written_in_place_and_never_made() {
    let root = ferrovia_lab::Folder::new();
    let file = |setting: Setting| root.join(setting.path().strip_prefix("/").unwrap());
    let put = |setting: Setting, text: &str| {
        std::fs::create_dir_all(file(setting).parent().unwrap()).unwrap();
        std::fs::write(file(setting), text).unwrap();
    };
    put(Setting::CONNTRACK_MAX, "65536\n");
    put(Setting::UDP, "not a number\n");
    let settings = ConntrackSettings {
        max: Some(262_144),
        udp: Duration::from_secs(40),
        ..NOTHING
    };
    let findings = apply(&settings, 4, &Files::below(root.path()));
    let text = std::fs::read_to_string(file(Setting::CONNTRACK_MAX)).unwrap();
    let texts: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(text.trim(), "262144");
    assert!(!file(Setting::CONNTRACK_HASH_SIZE).exists());
    let [hash_size, udp] = &texts[..] else {
        panic!("{texts:?}")
    };
    assert!(hash_size.contains("modprobe nf_conntrack"), "{hash_size}");
    assert!(udp.contains("its value is not a number"), "{udp}");
}
