//! The client's pod: does the work and says how it went.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::nodes::{obey, own_namespace};

/// How many work at once.
const CALLERS: usize = 8;
/// A message.
const MESSAGE: [u8; 64] = [7; 64];
/// An answer comes in microseconds; this only keeps a datagram that was lost from hanging the run.
const PATIENCE: Duration = Duration::from_millis(500);

pub(crate) fn run() {
    own_namespace();
    let mut idle = Vec::new();
    obey(|words| {
        match words {
            ["short", millis, address] => short(parse_time(millis), address.parse().unwrap()),
            ["trip", millis, address] => trip(parse_time(millis), address.parse().unwrap()),
            ["udp", millis, address] => udp(parse_time(millis), address.parse().unwrap()),
            ["fresh", millis, address] => fresh(parse_time(millis), address.parse().unwrap()),
            ["bulk", bytes, streams, address] => bulk(
                bytes.parse().unwrap(),
                streams.parse().unwrap(),
                address.parse().unwrap(),
            ),
            ["idle", count, address] => {
                for _ in 0..count.parse().unwrap() {
                    let mut stream = TcpStream::connect(address).unwrap();
                    exchange(&mut stream);
                    idle.push(stream);
                }
                Done::counted(idle.len() as f64)
            }
            ["forget"] => {
                idle.clear();
                Done::counted(0.0)
            }
            _ => panic!("no such order: {words:?}"),
        }
        .to_string()
    });
}

fn parse_time(millis: &str) -> Duration {
    Duration::from_millis(millis.parse().unwrap())
}

/// What came of an order.
struct Done {
    figure: f64,
    /// How many pieces of work that took, or bytes.
    amount: f64,
}

impl Done {
    fn counted(amount: f64) -> Self {
        let figure = amount;
        Self { figure, amount }
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.figure, self.amount)
    }
}

/// Connections a second: each carries a message and its answer.
fn short(time: Duration, address: SocketAddr) -> Done {
    rate(time, move || {
        move || {
            let mut stream = TcpStream::connect(address).unwrap();
            exchange(&mut stream);
            // The server hangs up first.
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        }
    })
}

/// Microseconds for a message and its answer, over a connection that stays.
fn trip(time: Duration, address: SocketAddr) -> Done {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let (count, seconds) = repeat(time, || exchange(&mut stream));
    Done {
        figure: seconds * 1e6 / count,
        amount: count,
    }
}

/// Datagrams a second, each answered, of clients that keep their sockets.
fn udp(time: Duration, address: SocketAddr) -> Done {
    rate(time, move || {
        let socket = udp_socket(address);
        move || ask(&socket)
    })
}

/// Datagrams a second, each answered, with a socket for each.
fn fresh(time: Duration, address: SocketAddr) -> Done {
    rate(time, move || move || ask(&udp_socket(address)))
}

/// Gbit/s of so many streams together.
fn bulk(bytes: usize, streams: usize, address: SocketAddr) -> Done {
    let start = Instant::now();
    let threads: Vec<_> = (0..streams)
        .map(|_| thread::spawn(move || pour(bytes / streams, address)))
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    Done {
        figure: bytes as f64 * 8.0 / 1e9 / start.elapsed().as_secs_f64(),
        amount: bytes as f64,
    }
}

fn pour(mut bytes: usize, address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    let data = vec![7; 128 << 10];
    while bytes > 0 {
        let piece = bytes.min(data.len());
        stream.write_all(&data[..piece]).unwrap();
        bytes -= piece;
    }
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
}

fn exchange(stream: &mut TcpStream) {
    let mut answer = [0; MESSAGE.len()];
    stream.write_all(&MESSAGE).unwrap();
    stream.read_exact(&mut answer).unwrap();
}

fn udp_socket(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn ask(socket: &UdpSocket) {
    // One that is lost costs its time, and no more.
    socket.send(&MESSAGE).ok();
    socket.recv(&mut [0; 2 * MESSAGE.len()]).ok();
}

/// How often a second something can be done, by all callers together.
fn rate<W: FnMut()>(time: Duration, caller: impl Fn() -> W + Copy + Send + 'static) -> Done {
    let threads: Vec<_> = (0..CALLERS)
        .map(|_| thread::spawn(move || repeat(time, caller())))
        .collect();
    let mut done = Done::counted(0.0);
    for thread in threads {
        let (count, seconds) = thread.join().unwrap();
        done.figure += count / seconds;
        done.amount += count;
    }
    done
}

/// How often something was done, and in how many seconds.
fn repeat(time: Duration, mut work: impl FnMut()) -> (f64, f64) {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < time {
        work();
        count += 1;
    }
    (f64::from(count), start.elapsed().as_secs_f64())
}
