//! Node ports on 127.0.0.1, and neighbours who must not get there (CVE-2020-8558).
//!
//! For node ports to answer on loopback the kernel has to route packets to 127.0.0.0/8, and then routes those of neighbours too. What
//! listens on loopback only, because it trusts everybody there, must stay out of their reach.

use std::net::{SocketAddr, UdpSocket};

use ferrovia_lab::Role;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::waiting::SOON;

use super::{BACKENDS, Machine, said_by};

const SETTING: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";
/// Somebody of the node who trusts everybody on loopback.
const TRUSTING: &str = "127.0.0.1:9753";
/// Somebody of the node whom everybody may reach.
const OPEN: &str = "198.51.100.10:9754";

/// Lets the neighbour send packets for 127.0.0.1 to the node instead of to itself.
const PREPARE: &str = "\
echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
ip link set lo down
ip addr flush dev lo
ip route add 127.0.0.1/32 via 198.51.100.10 dev eth0 onlink src 192.0.2.9";

/// A node with two who listen, and a neighbour.
struct Neighbourhood<'a> {
    machine: &'a Machine,
    trusting: UdpSocket,
    open: UdpSocket,
    neighbour: UdpSocket,
}

impl<'a> Neighbourhood<'a> {
    fn new(machine: &'a Machine) -> Self {
        let world = &machine.node.world;
        said_by(world.exec(Role::Outside, "sh").args(["-ec", PREPARE]));
        let socket = |role: Role, at: &str| {
            let _inside = world.enter(role).expect("it is there");
            UdpSocket::bind(at).expect("the port is free")
        };
        let trusting = socket(Role::Node, TRUSTING);
        trusting.set_nonblocking(true).expect("it is a socket");
        let open = socket(Role::Node, OPEN);
        open.set_read_timeout(Some(SOON)).expect("it is a socket");
        Self {
            machine,
            trusting,
            open,
            neighbour: socket(Role::Outside, "192.0.2.9:0"),
        }
    }

    /// Whether the neighbour reaches the one who trusts.
    fn gets_in(&self) -> bool {
        let send = |to: &str| {
            let to: SocketAddr = to.parse().expect("an address and port");
            self.neighbour.send_to(b"hello", to).expect("it is sent");
        };
        send(TRUSTING);
        // Comes by the same way, so when it is there the other one is there as well, or will never be.
        send(OPEN);
        let mut buffer = [0; 16];
        self.open
            .recv(&mut buffer)
            .unwrap_or_else(|error| panic!("{error}; log:\n{}", self.machine.node.log()));
        match self.trusting.recv(&mut buffer) {
            Ok(_) => true,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn setting(&self) -> String {
        let setting = self.machine.node.on_node("cat", &[SETTING]);
        setting.trim().to_owned()
    }
}

#[test]
fn neighbours_do_not_reach_loopback() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        let neighbourhood = Neighbourhood::new(&machine);
        machine.node.write("web.yaml", &web(&["2.10"]));
        machine.run(machine.without_checks());
        machine
            .node
            .expect("node > 127.0.0.1:30080 => 10.244.2.10:8080 masq");
        assert_eq!(neighbourhood.setting(), "1");
        assert!(!neighbourhood.gets_in());
        // Without the guard they are: the guard is effective.
        machine.tool("", &["-w", "60", "-F", "KUBE-FIREWALL"]);
        assert!(neighbourhood.gets_in());
    }
}

#[test]
fn the_nftables_mode_leaves_the_setting_alone() {
    let machine = Machine::new(BACKENDS[0]);
    let neighbourhood = Neighbourhood::new(&machine);
    machine.node.write("web.yaml", &web(&["2.10"]));
    machine.run(machine.nftables_mode());
    assert_eq!(neighbourhood.setting(), "0");
    assert!(!neighbourhood.gets_in());
    // The node itself is still served, by a proxy that listens there.
    machine
        .node
        .expect("node > 127.0.0.1:30080 => 10.244.2.10:8080 masq");
}
