//! Destinations that wait for their connections.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ferrovia_core::dialect::ipvs::{DestinationRemoval, IpvsOp, VirtualServerKey};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_core::plan::ipvs::{AddressOp, IpvsStep};
use ferrovia_host::Applier as _;
use ferrovia_host::ipvs::settings;
use ferrovia_host::ipvs::{Ipvs, IpvsApplier};
use ferrovia_host::probe::KernelVersion;
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

/// Looks until nothing is draining any more.
fn wait_until_reaped(applier: &mut IpvsApplier) {
    let deadline = Instant::now() + PATIENCE;
    while applier.leftovers_after().is_some() {
        assert!(Instant::now() < deadline, "it never ends");
        applier.tidy().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A node with one service, whose destination is `old` at first.
struct Scene {
    world: World,
    applier: IpvsApplier,
    ipvs: Ipvs,
    key: VirtualServerKey,
    old: SocketAddr,
    new: SocketAddr,
}

impl Scene {
    fn new() -> Self {
        let world = World::new(Spec::default()).unwrap();
        let inside = world.enter(Role::Node).unwrap();
        settings::make(&Files::of_this_machine(), KernelVersion::running(), false).unwrap();
        let (applier, ipvs) = (applier(), Ipvs::open().unwrap());
        drop(inside);
        let pod = |pod: Pod| SocketAddr::new(pod.v4().into(), 8080);
        let mut scene = Self {
            world,
            applier,
            ipvs,
            key: key(Protocol::Tcp, VIP),
            old: pod(Pod::B),
            new: pod(Pod::Y),
        };
        let server = IpvsOp::PutServer(server(scene.key, "rr"));
        scene.apply(IpvsStep::Device);
        scene.servers(vec![server, scene.put(scene.old)]);
        scene.apply(IpvsStep::Addresses(vec![AddressOp::Bind(
            scene.key.address,
        )]));
        scene
    }

    fn put(&self, to: SocketAddr) -> IpvsOp {
        put(self.key, &to.to_string(), 1)
    }

    fn drain(&self, to: SocketAddr) -> IpvsOp {
        remove(self.key, &to.to_string(), DestinationRemoval::Drain)
    }

    fn servers(&mut self, ops: Vec<IpvsOp>) {
        self.apply(IpvsStep::Servers(ops));
    }

    fn apply(&mut self, step: IpvsStep) {
        let _inside = self.world.enter(Role::Node).unwrap();
        assert!(self.applier.apply(&plan(vec![step])).unwrap());
    }

    /// Some destination waits for its connections to end.
    fn is_draining(&self) -> bool {
        self.applier.leftovers_after().is_some()
    }

    fn weights(&mut self) -> Vec<(SocketAddr, u32)> {
        let found = self.ipvs.destinations(&self.key).unwrap();
        let mut all: Vec<_> = found.iter().map(|to| (to.address, to.weight)).collect();
        all.sort();
        all
    }
}

fn a_connection_outlives_its_destinations_service() {
    let mut scene = Scene::new();
    let (old, new) = (scene.old, scene.new);
    let mut kept = Kept::open(&scene.world);
    assert!(kept.is_alive());

    // The old destination is replaced. Its connection goes on, new ones go to the new destination.
    scene.servers(vec![scene.put(new), scene.drain(old)]);
    assert_eq!(scene.weights(), [(old, 0), (new, 1)]);
    assert!(!scene.applier.tidy().unwrap() && scene.is_draining());
    for _ in 0..4 {
        assert_eq!(call(&scene.world), new);
    }
    assert!(kept.is_alive());

    // Taken back into service and removed again, it is as before.
    scene.servers(vec![scene.put(old)]);
    assert!(!scene.is_draining());
    assert_eq!(scene.weights(), [(old, 1), (new, 1)]);
    assert!(kept.is_alive());
    scene.servers(vec![scene.drain(old)]);
    scene.applier.tidy().unwrap();
    assert!(scene.is_draining());

    // It goes when the connection does.
    kept.reset();
    wait_until_reaped(&mut scene.applier);
    assert_eq!(scene.weights(), [(new, 1)]);
    let stats = scene.ipvs.servers(Family::V4).unwrap()[0].stats;
    assert!(stats.connections >= 5 && stats.bytes_in > 0 && stats.packets_out > 0);

    // One without connections goes at the first look, and a server takes its draining destinations along.
    scene.servers(vec![scene.put(old)]);
    scene.servers(vec![scene.drain(old)]);
    assert!(scene.applier.tidy().unwrap() && !scene.is_draining());
    scene.servers(vec![scene.drain(new), IpvsOp::DeleteServer(scene.key)]);
    assert!(!scene.is_draining());
}
