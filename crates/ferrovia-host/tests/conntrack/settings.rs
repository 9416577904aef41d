//! Kernel settings, where they can and cannot be written.

use ferrovia_host::sysctl::{Files, Obstacle, Setting, Settings};

use crate::support::{drop_privileges, in_namespace, read_only_folder};

#[test]
fn a_setting_of_this_namespace_is_written_and_read_back() {
    in_namespace(|| {
        let files = Files::of_this_machine();
        let before = files.read(Setting::UDP).unwrap();
        assert_eq!(files.set(Setting::UDP, before + 7).unwrap(), before);
        assert_eq!(files.read(Setting::UDP).unwrap(), before + 7);
    });
}

#[test]
fn a_value_that_is_right_is_not_written() {
    in_namespace(|| {
        let files = Files::of_this_machine();
        let before = files.read(Setting::UDP).unwrap();
        drop_privileges();
        assert_eq!(files.set(Setting::UDP, before).unwrap(), before);
        let error = files.set(Setting::UDP, before + 1).unwrap_err();
        assert_eq!((error.obstacle, error.writing), (Obstacle::Denied, true));
        assert_eq!(
            error.to_string(),
            "cannot write /proc/sys/net/netfilter/nf_conntrack_udp_timeout: Permission denied (os error 13)"
        );
    });
}

#[test]
fn distinguishes_read_only_file_system_from_missing_privilege() {
    in_namespace(|| {
        let folder = read_only_folder("proc/sys/net/netfilter/nf_conntrack_max", "65536\n");
        let files = Files::below(&folder);
        assert_eq!(files.set(Setting::CONNTRACK_MAX, 65_536).unwrap(), 65_536);
        let error = files.set(Setting::CONNTRACK_MAX, 1).unwrap_err();
        assert_eq!(error.obstacle, Obstacle::ReadOnly, "{error}");
        let error = files.set(Setting::CONNTRACK_HASH_SIZE, 1).unwrap_err();
        assert_eq!(error.obstacle, Obstacle::Missing, "{error}");
    });
}
