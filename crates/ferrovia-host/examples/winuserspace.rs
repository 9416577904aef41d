//! One service port on Windows, by hand: its address is put on the interface, connections to it are carried to endpoints, and when Enter is
//! pressed all of that goes again. To be run by an administrator:
//!
//! ```text
//! cargo run -p ferrovia-host --example winuserspace -- tcp 10.96.0.10:80 10.244.1.10:8080 10.244.2.10:8080
//! ```
//!
//! `INTERFACE_TO_ADD_SERVICE_IP` names the interface. The daemon itself is not for Windows yet, so this is how the part that is can be tried.

#[cfg(not(windows))]
fn main() {
    eprintln!("this example is for Windows");
}

#[cfg(windows)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    windows::main()
}

#[cfg(windows)]
mod windows {
    use std::collections::BTreeMap;
    use std::error::Error;
    use std::io;
    use std::net::SocketAddr;
    use std::time::Duration;

    use ferrovia_core::desired::Endpoint;
    use ferrovia_core::family::Family;
    use ferrovia_core::model::{PortKey, Protocol, ServiceKey, TrafficPolicy};
    use ferrovia_core::plan::userspace::{
        ProxyChange, ProxyListen, ProxyName, ProxySpec, UserspacePlan,
    };
    use ferrovia_host::Applier;
    use ferrovia_host::winuserspace::{Interface, WinuserspaceApplier};

    const UDP_IDLE: Duration = Duration::from_secs(30);

    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        let mut arguments = std::env::args().skip(1);
        let protocol = arguments.next().unwrap_or_default().to_uppercase();
        let protocol = Protocol::parse(&protocol).ok_or("the protocol is tcp or udp")?;
        let at: SocketAddr = arguments.next().ok_or("where to listen?")?.parse()?;
        let endpoints = arguments.map(|endpoint| endpoint.parse());
        let endpoints = endpoints.collect::<Result<Vec<SocketAddr>, _>>()?;

        let interface = Interface::open(Family::of(at.ip()), None)?;
        println!("{at} on {}; Enter ends it", interface.name());
        let mut applier = WinuserspaceApplier::new(interface, UDP_IDLE);
        let proxy = proxy(protocol, at, &endpoints);
        let mut going = UserspacePlan::default();
        going.proxies = vec![ProxyChange::Close(proxy.name.clone())];
        going.old_addresses = vec![at.ip()];
        let mut coming = UserspacePlan::default();
        coming.new_addresses = vec![at.ip()];
        coming.proxies = vec![ProxyChange::Set(proxy)];

        let applied = applier.apply(&coming);
        if applied.is_ok() && applier.leftovers_after().is_none() {
            io::stdin().read_line(&mut String::new())?;
        } else {
            println!("it cannot be listened on");
        }
        applier.apply(&going)?;
        applied?;
        Ok(())
    }

    fn proxy(protocol: Protocol, at: SocketAddr, endpoints: &[SocketAddr]) -> ProxySpec {
        let endpoint = |at: &SocketAddr| Endpoint {
            ip: at.ip(),
            port: at.port(),
            weight: 1,
            is_local: false,
        };
        ProxySpec {
            name: ProxyName {
                key: PortKey {
                    service: ServiceKey::new("default", "example").expect("a valid name"),
                    name: "".into(),
                    protocol,
                },
                policy: TrafficPolicy::Cluster,
            },
            listen: ProxyListen::At(vec![at]),
            client_filters: BTreeMap::new(),
            endpoints: endpoints.iter().map(endpoint).collect(),
            affinity: None,
        }
    }
}
