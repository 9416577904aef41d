//! Authentication, protocols and network namespaces.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;

use ferrovia_lab::apiserver::{
    ApiServer, ApiServerOptions, Auth, End, Fault, FaultTarget, Kind, sample,
};
use ferrovia_lab::{Folder, Role, Spec, World};
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use crate::client::{PATIENCE, get, send};

fn read(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

/// A connection over TLS, with the negotiated protocol.
enum Client {
    One(http1::SendRequest<Empty<Bytes>>),
    Two(http2::SendRequest<Empty<Bytes>>),
}

impl Client {
    /// Connects with the credentials in the kubeconfig's folder.
    async fn connect(server: &ApiServer, folder: &Folder, protocols: &[&str]) -> Self {
        let mut roots = RootCertStore::empty();
        let authority = read(folder, "ca.crt");
        let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = if folder.join("client.crt").exists() {
            let chain = CertificateDer::from_pem_file(folder.join("client.crt")).unwrap();
            let key = PrivateKeyDer::from_pem_file(folder.join("client.key")).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        let stream = tokio::net::TcpStream::connect(server.address())
            .await
            .unwrap();
        let name = ServerName::from(server.address().ip());
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await.unwrap();
        let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        let stream = TokioIo::new(stream);
        // Requests see the end of their connection.
        if agreed.as_deref() == Some(b"h2") {
            let executor = TokioExecutor::new();
            let (sender, connection) = http2::handshake(executor, stream).await.unwrap();
            tokio::spawn(connection);
            Self::Two(sender)
        } else {
            let (sender, connection) = http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            Self::One(sender)
        }
    }

    async fn get(&mut self, target: &str, token: &str) -> hyper::Result<Response<Incoming>> {
        let request = Request::get(target)
            .header("host", "lab")
            .header("authorization", format!("Bearer {token}"));
        let request = request.body(Empty::new()).unwrap();
        match self {
            Self::One(sender) => sender.send_request(request).await,
            Self::Two(sender) => sender.send_request(request).await,
        }
    }

    async fn status(&mut self, target: &str, token: &str) -> u16 {
        self.get(target, token).await.unwrap().status().as_u16()
    }
}

/// The next non-empty piece of a body; `None` at its end.
async fn piece(body: &mut Response<Incoming>) -> Option<hyper::Result<Bytes>> {
    loop {
        let frame = tokio::time::timeout(PATIENCE, body.frame())
            .await
            .unwrap()?;
        match frame.map(|frame| frame.into_data().unwrap()) {
            Ok(bytes) if bytes.is_empty() => {}
            other => return Some(other),
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn tls(auth: Auth) -> (ApiServer, Folder) {
    let options = ApiServerOptions {
        tls: true,
        auth,
        ..ApiServerOptions::default()
    };
    let server = ApiServer::start(options).unwrap();
    let folder = Folder::new();
    let kubeconfig = server.kubeconfig(folder.path()).unwrap();
    assert!(
        fs::read_to_string(kubeconfig)
            .unwrap()
            .contains(&server.url())
    );
    (server, folder)
}

#[test]
fn requires_a_token_that_can_be_rotated() {
    let options = ApiServerOptions {
        auth: Auth::TokenFile,
        ..ApiServerOptions::default()
    };
    let server = ApiServer::start(options).unwrap();
    let folder = Folder::new();
    server.kubeconfig(folder.path()).unwrap();
    let kubeconfig = read(&folder, "kubeconfig");
    let file = folder.join("token");
    assert!(kubeconfig.contains(&format!("tokenFile: {}", file.display())));

    let status = |token: &str| {
        let request =
            format!("GET /version HTTP/1.1\r\nHost: lab\r\nAuthorization: Bearer {token}\r\n\r\n");
        send(&server, &request).unwrap().status
    };
    let first = read(&folder, "token");
    assert_eq!(status(&first), 200);
    let refused = get(&server, "/version");
    assert_eq!(refused.status, 401);
    assert_eq!(refused.json()["reason"], "Unauthorized");
    let second = server.rotate_token();
    assert_eq!(status(&first), 401);
    assert_eq!(status(&second), 200);
    server.kubeconfig(folder.path()).unwrap();
    assert_eq!(read(&folder, "token"), second);
    let users: Vec<_> = server.requests().into_iter().map(|r| r.user).collect();
    let user = Some("system:kube-proxy".to_owned());
    assert_eq!(users, [user.clone(), None, None, user]);
}

#[test]
fn writes_the_token_into_the_kubeconfig() {
    let options = ApiServerOptions {
        auth: Auth::Token,
        ..ApiServerOptions::default()
    };
    let server = ApiServer::start(options).unwrap();
    let folder = Folder::new();
    server.kubeconfig(folder.path()).unwrap();
    let line = format!("token: {}\n", server.token());
    assert!(read(&folder, "kubeconfig").contains(&line));
}

#[test]
fn serves_http_1_and_2_over_tls() {
    let (server, folder) = tls(Auth::Token);
    let token = server.token();
    runtime().block_on(async {
        for (protocols, version) in [
            (&["h2", "http/1.1"][..], Version::HTTP_2),
            (&["http/1.1"][..], Version::HTTP_11),
            (&[][..], Version::HTTP_11),
        ] {
            let mut client = Client::connect(&server, &folder, protocols).await;
            let answer = client.get("/version", &token).await.unwrap();
            assert_eq!((answer.status().as_u16(), answer.version()), (200, version));
            assert_eq!(client.status("/version", "wrong").await, 401);
        }
    });
}

#[test]
fn requires_a_client_certificate() {
    let (server, folder) = tls(Auth::ClientCertificate);
    runtime().block_on(async {
        let mut client = Client::connect(&server, &folder, &["h2"]).await;
        assert_eq!(client.status("/version", "").await, 200);
        fs::remove_file(folder.join("client.crt")).unwrap();
        let mut anonymous = Client::connect(&server, &folder, &["h2"]).await;
        assert_eq!(anonymous.status("/version", "").await, 401);
    });
    let without_tls = ApiServerOptions {
        auth: Auth::ClientCertificate,
        ..ApiServerOptions::default()
    };
    assert!(ApiServer::start(without_tls).is_err());
}

#[test]
fn over_http2_a_stream_can_be_reset_and_the_connection_lives() {
    let (server, folder) = tls(Auth::None);
    runtime().block_on(async {
        let mut client = Client::connect(&server, &folder, &["h2"]).await;
        let mut watch = client.get("/api/v1/services?watch=1", "").await.unwrap();
        server.write_to_watches(Kind::Service, "half a li");
        server.end_watches(Kind::Service, End::Abort);
        assert_eq!(piece(&mut watch).await.unwrap().unwrap(), "half a li");
        assert!(piece(&mut watch).await.unwrap().is_err());

        server.inject_times(1, FaultTarget::ALL, Fault::Abort);
        assert!(client.get("/version", "").await.is_err());
        assert_eq!(client.status("/version", "").await, 200);
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn over_http2_the_client_can_be_sent_away_while_its_watches_go_on() {
    let (server, folder) = tls(Auth::None);
    runtime().block_on(async {
        let mut client = Client::connect(&server, &folder, &["h2"]).await;
        let mut watch = client.get("/api/v1/services?watch=1", "").await.unwrap();
        server.go_away();
        // The client notices asynchronously; from then on its requests fail.
        let closed = async { while client.get("/version", "").await.is_ok() {} };
        tokio::time::timeout(PATIENCE, closed).await.unwrap();
        server.apply(sample::service(1)).unwrap();
        let event = piece(&mut watch).await.unwrap().unwrap();
        assert!(event.starts_with(b"{\"type\":\"ADDED\""));
        server.end_watches(Kind::Service, End::Clean);
        let end = piece(&mut watch).await;
        assert!(end.is_none(), "{end:?}");
    });
    server.wait_until(|s| s.connections() == 0).unwrap();
}

#[test]
fn resets_a_tls_connection_in_the_middle_of_a_line() {
    let (server, folder) = tls(Auth::None);
    runtime().block_on(async {
        for protocol in ["h2", "http/1.1"] {
            let mut client = Client::connect(&server, &folder, &[protocol]).await;
            let target = "/api/v1/services?watch=1&resourceVersion=1000000";
            let mut watch = client.get(target, "").await.unwrap();
            server.reset_in_next_write();
            server.write_to_watches(Kind::Service, "a line of which half is sent\n");
            assert!(piece(&mut watch).await.unwrap().is_err(), "{protocol}");
        }
    });
}

#[test]
fn listens_in_the_namespace_of_the_starting_thread() {
    let world = World::new(Spec::default()).unwrap();
    let inside = world.enter(Role::Node).unwrap();
    let server = ApiServer::start(ApiServerOptions::default()).unwrap();
    assert_eq!(get(&server, "/version").status, 200);
    drop(inside);
    assert!(TcpStream::connect(server.address()).is_err());
    // The reopened socket is in the same namespace.
    server.refuse_connections(true).unwrap();
    server.heal().unwrap();
    assert!(TcpStream::connect(server.address()).is_err());
    let _inside = world.enter(Role::Node).unwrap();
    assert_eq!(get(&server, "/version").status, 200);
}

#[test]
fn dropping_a_server_closes_its_connections() {
    let server = ApiServer::start(ApiServerOptions::default()).unwrap();
    let address = server.address();
    let mut watch = get(&server, "/api/v1/services?watch=1");
    drop(server);
    assert!(watch.line().is_err());
    assert!(TcpStream::connect(address).is_err());
}
