//! Destinations that wait for their connections.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ferrovia_core::dialect::ipvs::{Op, Removal, ServerKey};
use ferrovia_core::model::Protocol;
use ferrovia_core::plan::ipvs::{AddressOp, IpvsPlan, Step};
use ferrovia_host::Applier as _;
use ferrovia_host::ipvs::settings::{self, KernelVersion};
use ferrovia_host::ipvs::{Ipvs, IpvsApplier};
use ferrovia_host::sysctl::Files;
use ferrovia_lab::client::Caller;
use ferrovia_lab::uml::suite::Test;
use ferrovia_lab::{Outcome, Pod, Protocol as Over, Role, Spec, World};

use crate::applier::{applier, plan};
use crate::servers::{key, put, remove, server};

pub(crate) const TESTS: [Test; 1] = [(
    "drain: a connection outlives its destination's service",
    a_connection_outlives_its_destinations_service,
)];

/// Much longer than anything takes here; also longer than lost packets of a slow kernel.
const PATIENCE: Duration = Duration::from_secs(60);
const VIP: &str = "10.96.0.1:80";

/// Where a new connection ends up.
fn call(world: &World) -> SocketAddr {
    let caller = Caller::enter(world, Role::PodA).unwrap();
    match caller.connect(Over::Tcp, None, VIP.parse().unwrap(), PATIENCE) {
        Outcome::Answer(answer) => answer.endpoint,
        other => panic!("{other}"),
    }
}

/// A connection that is kept.
struct Kept(BufReader<TcpStream>);

impl Kept {
    fn open(world: &World) -> Self {
        let _inside = world.enter(Role::PodA).unwrap();
        let stream = TcpStream::connect(VIP).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut kept = Self(BufReader::new(stream));
        // The server introduces itself.
        kept.read();
        kept
    }

    fn say(&mut self) {
        self.0.get_mut().write_all(b"still there?\n").unwrap();
    }

    fn read(&mut self) {
        let mut line = String::new();
        assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "closed");
    }

    fn is_alive(&mut self) -> bool {
        self.say();
        self.read();
        true
    }

    /// Resets the connection, as a close does while something is unread: a connection that was closed in good order is remembered by IPVS
    /// for two minutes, one that was reset for ten seconds.
    fn reset(mut self) {
        self.say();
        assert_ne!(self.0.get_ref().peek(&mut [0]).unwrap(), 0, "closed");
    }
}

fn weights(ipvs: &mut Ipvs, server: &ServerKey) -> Vec<(SocketAddr, u32)> {
    let mut all: Vec<_> = ipvs
        .destinations(server)
        .unwrap()
        .iter()
        .map(|to| (to.address, to.weight))
        .collect();
    all.sort();
    all
}

/// Looks until nothing is draining any more.
fn wait_until_reaped(applier: &mut IpvsApplier) {
    let deadline = Instant::now() + PATIENCE;
    while applier.leftovers_after().is_some() {
        assert!(Instant::now() < deadline, "it never ends");
        applier.tidy().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn a_connection_outlives_its_destinations_service() {
    let world = World::new(Spec::default()).unwrap();
    let inside = world.enter(Role::Node).unwrap();
    settings::make(&Files::of_this_machine(), KernelVersion::running(), false).unwrap();
    let mut ipvs = Ipvs::open().unwrap();
    let mut applier = applier();
    drop(inside);
    let key = key(Protocol::Tcp, VIP);
    let (old, new) = (
        SocketAddr::new(Pod::B.v4().into(), 8080),
        SocketAddr::new(Pod::Y.v4().into(), 8080),
    );
    let start = vec![
        Op::PutServer(server(key, "rr")),
        put(key, &old.to_string(), 1),
    ];
    apply(
        &mut applier,
        &world,
        vec![
            Step::Device,
            Step::Servers(start),
            Step::Addresses(vec![AddressOp::Bind(key.address)]),
        ],
    );
    let mut kept = Kept::open(&world);
    assert!(kept.is_alive());

    // The old destination is replaced. Its connection goes on, new ones go to the new destination.
    let replace = vec![
        put(key, &new.to_string(), 1),
        remove(key, &old.to_string(), Removal::Drain),
    ];
    apply(&mut applier, &world, vec![Step::Servers(replace)]);
    assert_eq!(weights(&mut ipvs, &key), [(old, 0), (new, 1)]);
    assert!(!applier.tidy().unwrap() && applier.has_draining());
    for _ in 0..4 {
        assert_eq!(call(&world), new);
    }
    assert!(kept.is_alive());
    // Taken back into service and removed again, it is as before.
    apply(
        &mut applier,
        &world,
        vec![Step::Servers(vec![put(key, &old.to_string(), 1)])],
    );
    assert!(!applier.has_draining());
    assert_eq!(weights(&mut ipvs, &key), [(old, 1), (new, 1)]);
    assert!(kept.is_alive());
    apply(
        &mut applier,
        &world,
        vec![Step::Servers(vec![remove(
            key,
            &old.to_string(),
            Removal::Drain,
        )])],
    );
    applier.tidy().unwrap();
    assert!(applier.has_draining());

    // It goes when the connection does.
    kept.reset();
    wait_until_reaped(&mut applier);
    assert_eq!(weights(&mut ipvs, &key), [(new, 1)]);
    let stats = ipvs.servers(ferrovia_core::family::Family::V4).unwrap()[0].stats;
    assert!(
        stats.connections >= 5 && stats.bytes_in > 0 && stats.packets_out > 0,
        "{stats:?}"
    );
    // One without connections goes at the first look.
    apply(
        &mut applier,
        &world,
        vec![Step::Servers(vec![put(key, &old.to_string(), 1)])],
    );
    apply(
        &mut applier,
        &world,
        vec![Step::Servers(vec![remove(
            key,
            &old.to_string(),
            Removal::Drain,
        )])],
    );
    assert!(applier.tidy().unwrap() && !applier.has_draining());
    // A server takes its draining destinations along.
    apply(
        &mut applier,
        &world,
        vec![Step::Servers(vec![
            remove(key, &new.to_string(), Removal::Drain),
            Op::DeleteServer(key),
        ])],
    );
    assert!(!applier.has_draining());
}

fn apply(applier: &mut IpvsApplier, world: &World, steps: Vec<Step>) {
    let _inside = world.enter(Role::Node).unwrap();
    let plan: IpvsPlan = plan(steps);
    assert!(applier.apply(&plan).unwrap());
}
