//! IPVS's timeouts and schedulers, kernel settings.

use ferrovia_core::dialect::ipvs::Scheduler;
use ferrovia_host::ipvs::settings;
use ferrovia_host::ipvs::{Error, Ipvs, Timeouts};
use ferrovia_host::probe::KernelVersion;
use ferrovia_host::sysctl::{Files, Setting, Settings as _};
use ferrovia_lab::uml::suite::Test;

use crate::support::{in_namespace, run};

pub(crate) const TESTS: [Test; 3] = [
    ("time-outs are set one by one", time_outs_are_set_one_by_one),
    (
        "schedulers are found without a trace",
        schedulers_are_found_without_a_trace,
    ),
    ("settings are made once", settings_are_made_once),
];

fn time_outs_are_set_one_by_one() {
    in_namespace(|| {
        let mut ipvs = Ipvs::open().unwrap();
        let shown = || run("ipvsadm -L --timeout").trim().to_owned();
        let before = shown();
        let [.., tcp, _, udp] = before.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{before}");
        };
        ipvs.set_timeouts(Timeouts {
            tcp_fin: 7,
            ..Timeouts::default()
        })
        .unwrap();
        assert_eq!(shown(), format!("Timeout (tcp tcpfin udp): {tcp} 7 {udp}"));
    });
}

fn schedulers_are_found_without_a_trace() {
    in_namespace(|| {
        // Another process may use our mark.
        run("ipvsadm -A -f 2118388225 -s rr");
        let before = run("ipvsadm -S -n");
        let mut ipvs = Ipvs::open().unwrap();
        let names: Vec<String> = ipvs
            .schedulers()
            .unwrap()
            .iter()
            .map(Scheduler::to_string)
            .collect();
        // This kernel is older than the last of the names.
        assert_eq!(names, Scheduler::NAMES[..13]);
        ipvs.require_scheduler(Scheduler::MH).unwrap();
        let missing = Scheduler::known("twos").unwrap();
        let error = ipvs.require_scheduler(missing).unwrap_err();
        assert!(matches!(error, Error::NoScheduler { .. }));
        assert!(
            error.to_string().contains("no scheduler twos")
                && error.to_string().contains("rr, wrr"),
            "{error}"
        );
        assert_eq!(run("ipvsadm -S -n"), before);
    });
}

fn settings_are_made_once() {
    in_namespace(|| {
        let files = Files::of_this_machine();
        let kernel = KernelVersion::running();
        assert!(kernel.is_some());
        let changed = settings::make(&files, kernel, true).unwrap();
        assert!(
            changed.contains(&Setting::IPVS_CONNTRACK) && changed.contains(&Setting::ARP_ANNOUNCE)
        );
        assert_eq!(files.read(Setting::IPVS_EXPIRE_NODEST_CONN).unwrap(), 1);
        assert_eq!(settings::make(&files, kernel, true).unwrap(), []);
        let error = settings::make(&Files::below("/nowhere"), kernel, false).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("sysctl -w net.ipv4.vs.conntrack=1"),
            "{error}"
        );
    });
}
