//! Changes of endpoints and listeners, and whom they do not concern.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use ferrovia_host::userspace::{Address, AddressPresence, Error, Listen, Protocol};

use crate::support::{
    ANYWHERE, alone, ask, connect, descriptors, echo_server, engine, in_namespace, named_server,
    service, set_endpoints, wait_until,
};

fn echoes(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"there?")?;
    stream.read_exact(&mut [0; 6])
}

#[test]
fn connections_outlive_changes_that_do_not_concern_them() {
    in_namespace(|| {
        let engine = engine();
        let server = echo_server();
        let (service, address) = service(&engine, Protocol::Tcp, &[server]);
        let mut stream = connect(address);
        echoes(&mut stream).unwrap();
        set_endpoints(&service, &[named_server(), server]);
        service.set_affinity(Some(Duration::from_secs(1)));
        let other = service.listen(ANYWHERE.into()).unwrap();
        assert!(service.unlisten(address));
        assert!(!service.unlisten(address));
        echoes(&mut stream).unwrap();
        assert_eq!(service.listeners(), [other]);
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // Without a limit, not even the end of the service port concerns them.
        drop(service);
        echoes(&mut stream).unwrap();
        assert_eq!(engine.open_connections(), 1);
    });
}

#[test]
fn connections_of_an_endpoint_that_went_have_their_time() {
    in_namespace(|| {
        let engine = engine();
        let servers = [echo_server(), echo_server()];
        let (service, address) = service(&engine, Protocol::Tcp, &servers);
        // One after the other, for the endpoints come in turn.
        let mut streams = servers.map(|_| {
            let mut stream = connect(address);
            echoes(&mut stream).unwrap();
            stream
        });
        let drain = Duration::from_millis(500);
        let start = Instant::now();
        let stays = [servers[1].into()];
        service.set_endpoints(&stays, Some(drain));
        streams[0].set_read_timeout(None).unwrap();
        let error = streams[0].read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(start.elapsed() >= drain);
        echoes(&mut streams[1]).unwrap();
        service.set_endpoints(&[], Some(Duration::ZERO));
        let error = streams[1].read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_closed_port_is_free_at_once() {
    // Alone, for a program that is being started has copies of all descriptors for a moment, and those of UDP sockets count.
    alone("changes::a_closed_port_is_free_at_once", || {
        let engine = engine();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let server = named_server();
            let (first, address) = service(&engine, protocol, &[server]);
            for _ in 0..50 {
                assert!(first.unlisten(address));
                assert_eq!(first.listen(address.into()).unwrap(), address);
            }
        }
    });
}

/// A process with copies of all our descriptors, as every program is between its making and its start.
struct Copy(libc::pid_t);

impl Copy {
    fn new() -> Self {
        // SAFETY: the child makes nothing but two system calls, and ends with its parent.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: no pointers are passed.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::pause();
                }
            },
            child => Self(child),
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // SAFETY: the child is ours and has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn closed_listener_refuses_even_if_another_process_has_a_copy() {
    alone(
        "changes::closed_listener_refuses_even_if_another_process_has_a_copy",
        || {
            let engine = engine();
            let (first, address) = service(&engine, Protocol::Tcp, &[named_server()]);
            ask(address).unwrap();
            let _copy = Copy::new();
            assert!(first.unlisten(address));
            let refused = TcpStream::connect(address).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            assert_eq!(first.listen(address.into()).unwrap(), address);
            ask(address).unwrap();
        },
    );
}

#[test]
fn a_port_that_is_taken_is_named() {
    in_namespace(|| {
        let engine = engine();
        let tcp = TcpListener::bind(ANYWHERE).unwrap();
        let udp = UdpSocket::bind(ANYWHERE).unwrap();
        let taken = [
            (Protocol::Tcp, tcp.local_addr().unwrap()),
            (Protocol::Udp, udp.local_addr().unwrap()),
        ];
        for (protocol, address) in taken {
            let service = engine.service("default/web:http", protocol);
            let error = service.listen(address.into()).unwrap_err();
            assert!(matches!(error, Error::Taken { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(&address.to_string()), "{text}");
            assert!(text.contains("default/web:http"), "{text}");
            // Nor can two service ports have one.
            let free = service.listen(ANYWHERE.into()).unwrap();
            let second = engine.service("second", protocol);
            assert!(matches!(
                second.listen(free.into()),
                Err(Error::Taken { .. })
            ));
        }
    });
}

#[test]
fn a_range_gives_its_free_ports_and_then_says_so() {
    in_namespace(|| {
        let engine = engine();
        let held = TcpListener::bind("127.0.0.1:30002").unwrap();
        let service = engine.service("test", Protocol::Tcp);
        let listen = || Listen {
            address: Address::Range(ANYWHERE.ip(), 30000..=30003),
            presence: AddressPresence::Here,
            gate: None,
        };
        let mut ports: Vec<u16> = (0..3)
            .map(|_| service.listen(listen()).unwrap().port())
            .collect();
        ports.sort_unstable();
        assert_eq!(ports, [30000, 30001, 30003]);
        let error = service.listen(listen()).unwrap_err();
        assert!(error.to_string().contains("30000 to 30003"), "{error}");
        drop(held);
        assert_eq!(service.listen(listen()).unwrap().port(), 30002);
    });
}

#[test]
fn very_many_service_ports_need_no_more_threads() {
    in_namespace(|| {
        let engine = engine();
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let server = named_server();
        let before = (threads(), descriptors());
        let services: Vec<_> = (0..1000)
            .map(|_| service(&engine, Protocol::Tcp, &[server]))
            .collect();
        // Other tests of this process run at the same time, each with a few of its own.
        assert!(threads() < before.0 + 200);
        assert!(descriptors() < before.1 + 2000);
        for (_, address) in services.iter().step_by(100) {
            assert_eq!(ask(*address).unwrap(), server.port());
        }
        drop(services);
        wait_until("all is closed", || engine.open_connections() == 0);
    });
}
