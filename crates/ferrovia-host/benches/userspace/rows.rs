//! What is measured, and what it is to be.

use crate::nodes::Service;
use crate::table::Goal;

/// How much is done.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) rounds: usize,
    millis: u64,
    megabytes: u64,
    idle: usize,
}

impl Extent {
    /// For figures; two to three minutes.
    pub(crate) const FULL: Self = Self {
        rounds: 5,
        millis: 1_000,
        megabytes: 1_000,
        idle: 10_000,
    };
    /// For a glance.
    pub(crate) const QUICK: Self = Self {
        rounds: 3,
        millis: 300,
        megabytes: 300,
        idle: 1_000,
    };
    /// To see that it works.
    pub(crate) const TRIAL: Self = Self {
        rounds: 1,
        millis: 50,
        megabytes: 20,
        idle: 50,
    };

    /// A proxy needs two descriptors for each connection, and some for itself.
    pub(crate) fn keep_within(&mut self, descriptors: u64) {
        let most = descriptors.saturating_sub(200) / 2;
        self.idle = self.idle.min(most as usize);
    }
}

/// What kind of measurement it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// As much as can be done, each way.
    Compared,
    /// Connections that are open and do nothing, through the engine.
    Idle,
}

/// A figure, and perhaps a second one: what it costs the proxy.
pub(crate) struct Row {
    /// The word that chooses it.
    pub(crate) section: &'static str,
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) goal: Goal,
    pub(crate) work: Work,
    pub(crate) order: String,
    pub(crate) service: Service,
    pub(crate) cost: Option<Cost>,
}

/// The second figure of a row.
pub(crate) struct Cost {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// From processor seconds for one piece of work to the unit.
    pub(crate) scale: f64,
    pub(crate) goal: Goal,
}

/// All rows. The goals were set on another machine; with them are the direct figures of that one, by which they are brought to this one.
pub(crate) fn rows(extent: Extent) -> Vec<Row> {
    let Extent { millis, .. } = extent;
    vec![
        Row {
            section: "short",
            name: "short connections".to_owned(),
            unit: "1/s",
            goal: Goal::at_least(11_040.0).where_direct(22_080.0),
            work: Work::Compared,
            order: format!("short {millis}"),
            service: Service::Short,
            cost: Some(Cost {
                name: "  proxy CPU for 1,000",
                unit: "ms",
                scale: 1e6,
                goal: Goal::at_most(60.0).where_direct_rate(22_080.0),
            }),
        },
        Row {
            section: "trip",
            name: "64-byte round trip".to_owned(),
            unit: "µs",
            goal: Goal::at_most(85.0).where_direct(54.0),
            work: Work::Compared,
            order: format!("trip {millis}"),
            service: Service::Echo,
            cost: None,
        },
        datagrams("udp", "UDP, 8 clients", (62_700.0, 91_500.0), millis),
        datagrams("fresh", "UDP, fresh sockets", (25_500.0, 53_800.0), millis),
        bulk("bulk, 1 stream", (14.4, 16.0), 1, extent.megabytes),
        bulk("bulk, 8 streams", (17.8, 23.7), 8, extent.megabytes),
        Row {
            section: "idle",
            name: format!("memory of {} idle", extent.idle),
            unit: "MiB",
            goal: Goal::at_most(60.0),
            work: Work::Idle,
            order: format!("idle {}", extent.idle),
            service: Service::Keep,
            cost: Some(Cost {
                name: "  descriptors left behind",
                unit: "",
                scale: 1.0,
                goal: Goal::at_most(0.0),
            }),
        },
    ]
}

fn datagrams(
    section: &'static str,
    name: &'static str,
    (rate, direct): (f64, f64),
    millis: u64,
) -> Row {
    Row {
        section,
        name: name.to_owned(),
        unit: "1/s",
        goal: Goal::at_least(rate).where_direct(direct),
        work: Work::Compared,
        order: format!("{section} {millis}"),
        service: Service::Udp,
        cost: Some(Cost {
            name: "  proxy CPU for 1,000",
            unit: "ms",
            scale: 1e6,
            goal: Goal::none(),
        }),
    }
}

fn bulk(name: &'static str, (rate, direct): (f64, f64), streams: usize, megabytes: u64) -> Row {
    Row {
        section: "bulk",
        name: name.to_owned(),
        unit: "Gbit/s",
        goal: Goal::at_least(rate).where_direct(direct),
        work: Work::Compared,
        order: format!("bulk {} {streams}", megabytes * 1_000_000),
        service: Service::Sink,
        cost: Some(Cost {
            name: "  proxy CPU for 1 GB",
            unit: "s",
            scale: 1e9,
            goal: Goal::at_most(0.22).where_direct_rate(direct),
        }),
    }
}
