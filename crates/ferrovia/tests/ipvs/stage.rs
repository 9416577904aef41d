//! A node with the daemon in the ipvs mode, and what is to be seen from outside.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ferrovia_lab::client::{Call, Caller};
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::waiting::wait;
use ferrovia_lab::{Outcome, Pod, Protocol, Role};

use crate::FERROVIA;

/// Much longer than an answer takes, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The port on which pods answer.
const TARGET_PORT: u16 = 8080;

/// A node and its daemon.
pub(crate) struct Stage {
    pub(crate) node: TestNode,
}

impl Stage {
    /// A node without a hint which iptables tools to use: the daemon must detect that this kernel supports only the legacy tools.
    pub(crate) fn new() -> Self {
        Self {
            node: TestNode::new(FERROVIA),
        }
    }

    /// The daemon's command line in a mode.
    pub(crate) fn command(&self, mode: &str) -> Command {
        let mut command = self.node.run_command();
        command.arg(format!("--proxy-mode={mode}"));
        command
    }

    /// Starts the daemon in a mode and waits until all services are in the kernel.
    pub(crate) fn start(&self, mode: &str) {
        self.run(self.command(mode));
    }

    pub(crate) fn run(&self, command: Command) {
        self.node.spawn(command);
        self.node.wait_until_ready();
    }

    /// `ferrovia run --once` in the ipvs mode.
    pub(crate) fn once(&self) -> Output {
        self.command("ipvs").arg("--once").output().unwrap()
    }

    /// Which scheduler a virtual server has, as `ipvsadm` prints it, with its flags.
    pub(crate) fn scheduler(&self, vip: &str) -> String {
        let servers = self.servers();
        let begin = format!("-A -t {vip} -s ");
        let line = servers.lines().find_map(|line| line.strip_prefix(&begin));
        let line = line.unwrap_or_else(|| panic!("no {vip} among\n{servers}"));
        line.trim().to_owned()
    }

    /// The destinations of a virtual server of TCP with their weights; none if it is not there.
    pub(crate) fn destinations(&self, vip: &str) -> BTreeMap<SocketAddr, u32> {
        let servers = self.servers();
        let begin = format!("-a -t {vip} -r ");
        let lines = servers.lines().filter_map(|line| line.strip_prefix(&begin));
        let destination = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let weight = words.iter().position(|word| *word == "-w").unwrap() + 1;
            (words[0].parse().unwrap(), words[weight].parse().unwrap())
        };
        lines.map(destination).collect()
    }

    /// A virtual server's destinations become these.
    pub(crate) fn expect_destinations(&self, vip: &str, wanted: &[(Pod, u32)]) {
        let wanted = wanted.iter().map(|(pod, weight)| (at(*pod), *weight));
        let wanted: BTreeMap<_, _> = wanted.collect();
        wait(|| match self.destinations(vip) {
            now if now == wanted => Ok(()),
            now => Err(format!("{now:?}\nlog:\n{}", self.node.log())),
        });
    }

    /// All virtual servers, in the words that make them.
    pub(crate) fn servers(&self) -> String {
        self.node.on_node("ipvsadm", &["-Sn"])
    }

    /// Which endpoint answers a call.
    pub(crate) fn call(&self, protocol: Protocol, from: Role, to: &str) -> SocketAddr {
        let caller = Caller::enter(&self.node.world, from).unwrap();
        let outcome = caller.connect(protocol, None, to.parse().unwrap(), PATIENCE);
        self.endpoint(&outcome)
    }

    /// Which endpoints answer so many calls over TCP of a pod.
    pub(crate) fn calls(&self, to: &str, times: usize) -> Vec<SocketAddr> {
        let call = |_| self.call(Protocol::Tcp, Role::PodC, to);
        (0..times).map(call).collect()
    }

    /// A connection that stays open, and which endpoint it led to.
    pub(crate) fn hold(&self, to: &str) -> (Call, SocketAddr) {
        let caller = Caller::enter(&self.node.world, Role::PodC).unwrap();
        let to = to.parse().unwrap();
        let mut call = caller.start(Protocol::Tcp, None, to).unwrap();
        let outcome = call.finish(Instant::now() + PATIENCE);
        (call, self.endpoint(&outcome))
    }

    fn endpoint(&self, outcome: &Outcome) -> SocketAddr {
        match outcome {
            Outcome::Answer(answer) => answer.endpoint,
            other => panic!("{other}\n{}\nlog:\n{}", self.servers(), self.node.log()),
        }
    }
}

/// The connection still works.
pub(crate) fn expect_alive(call: &mut Call) {
    call.repeat(PATIENCE).unwrap();
}

/// Where a pod answers.
pub(crate) fn at(pod: Pod) -> SocketAddr {
    (pod.v4(), TARGET_PORT).into()
}

/// A Service of IPv4 to be written into the folder.
pub(crate) struct Manifest<'a> {
    pub(crate) name: &'a str,
    /// Annotations, as YAML.
    pub(crate) annotations: &'a str,
    /// More of its specification, as YAML.
    pub(crate) spec: &'a str,
    pub(crate) ip: &'a str,
    pub(crate) protocol: &'a str,
    /// Endpoints and their weights.
    pub(crate) endpoints: &'a [(Pod, u32)],
}

impl Default for Manifest<'_> {
    fn default() -> Self {
        Self {
            name: "web",
            annotations: "{}",
            spec: "",
            ip: "10.96.0.10",
            protocol: "TCP",
            endpoints: &[],
        }
    }
}

impl Manifest<'_> {
    /// Writes it, in the place of one with the same name.
    pub(crate) fn write(&self, stage: &Stage) {
        stage
            .node
            .write(&format!("{}.yaml", self.name), &self.text());
    }

    fn text(&self) -> String {
        let Self {
            name,
            annotations,
            spec,
            ip,
            protocol,
            endpoints,
        } = self;
        let mut text = format!(
            "kind: Service\napiVersion: v1\nmetadata: {{ name: {name}, annotations: {annotations} }}\nspec:\n  clusterIP: {ip}\n  \
             ports: [{{ port: 80, protocol: {protocol} }}]\n{spec}"
        );
        // Weights are of slices, so each endpoint has one of its own.
        for (number, (pod, weight)) in endpoints.iter().enumerate() {
            let _ = write!(
                text,
                "---\nkind: EndpointSlice\napiVersion: discovery.k8s.io/v1\nmetadata:\n  name: {name}-{number}\n  \
                 labels: {{ kubernetes.io/service-name: {name} }}\n  annotations: {{ ferrovia.io/weight: '{weight}' }}\n\
                 addressType: IPv4\nports: [{{ port: {TARGET_PORT}, protocol: {protocol} }}]\n\
                 endpoints: [{{ addresses: ['{}'] }}]\n",
                pod.v4()
            );
        }
        text
    }
}
