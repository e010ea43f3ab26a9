//! TLS: the options in a server's name, read from files while they can be read, and sessions.
//!
//! A session has no socket. It converts the client's bytes into bytes for the server, and back. The
//! pager sends and receives them in its ring; other code uses calls that wait.

use crate::url::{Address, Server};
use rustls::client::{ClientConnectionData, Resumption, UnbufferedClientConnection};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use terapage_sys::memory;
use terapage_sys::ring::Piece;

/// The most bytes of a record before encryption.
pub const RECORD: usize = 16 << 10;

/// The number of bytes that are received at once.
const ROOM: usize = 64 << 10;

/// The number of bytes by which a record exceeds its contents, with some to spare.
const MORE: usize = 512;

/// The contents of the files for TLS with a server.
#[derive(Clone)]
pub struct Tls(Arc<Material>);

struct Material {
    /// Certificates of CAs.
    roots: Vec<CertificateDer<'static>>,
    /// The client's certificate, and those between it and its CA.
    chain: Vec<CertificateDer<'static>>,
    key: Option<PrivateKeyDer<'static>>,
    /// Made at the first use, because loading the system's CAs takes a millisecond.
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tls")
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tls {}

/// The prefix of each part when it is passed on: a root, a certificate of the chain, the key.
const PARTS: [u8; 3] = *b"rck";

impl Tls {
    /// Reads the files that the server's name says, or the system's.
    ///
    /// # Errors
    /// A file cannot be read, or has other contents: one line, with the option's name.
    pub fn read(server: &Server) -> Result<Tls, String> {
        let files = &server.files;
        let roots = match &files.ca {
            Some(file) => certificates("ca", file)?,
            None => of_system()?,
        };
        let chain = files.cert.as_ref().map(|file| certificates("cert", file)).transpose()?;
        let key = match &files.key {
            None => None,
            Some(file) => {
                let no = || format!("key={} holds no key (PEM, without a passphrase)", file.display());
                Some(PrivateKeyDer::from_pem_slice(&read("key", file)?).map_err(|_| no())?)
            }
        };
        Tls::of(roots, chain.unwrap_or_default(), key)
    }

    fn of(
        roots: Vec<CertificateDer<'static>>,
        chain: Vec<CertificateDer<'static>>,
        key: Option<PrivateKeyDer<'static>>,
    ) -> Result<Tls, String> {
        Ok(Tls(Arc::new(Material { roots, chain, key, config: OnceLock::new() })))
    }

    /// All of it as bytes, for a process that cannot read the files.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut add = |kind: u8, bytes: &[u8]| {
            all.push(kind);
            all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            all.extend_from_slice(bytes);
        };
        self.0.roots.iter().for_each(|root| add(PARTS[0], root));
        self.0.chain.iter().for_each(|certificate| add(PARTS[1], certificate));
        self.0.key.iter().for_each(|key| add(PARTS[2], key.secret_der()));
        all
    }

    /// The reverse of [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Tls, String> {
        let (mut roots, mut chain, mut key) = (Vec::new(), Vec::new(), None);
        let no = || "holds something else".to_owned();
        while let Some((kind, rest)) = bytes.split_first() {
            let (len, rest) = rest.split_first_chunk().ok_or_else(no)?;
            let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(no)?;
            match kind {
                b'r' => roots.push(part.to_vec().into()),
                b'c' => chain.push(part.to_vec().into()),
                b'k' => key = Some(PrivateKeyDer::try_from(part.to_vec()).map_err(|_| no())?),
                _ => return Err(no()),
            }
            bytes = rest;
        }
        Tls::of(roots, chain, key)
    }

    /// Checks that it can be used.
    ///
    /// # Errors
    /// Why not, in one line.
    pub fn check(&self) -> Result<(), String> {
        self.config().map(drop)
    }

    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        self.0.config.get_or_init(|| configure(&self.0)).clone()
    }
}

fn configure(material: &Material) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(material.roots.iter().cloned());
    if roots.is_empty() {
        return Err("ca= holds no certificate of a CA".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let no = |error: rustls::Error| match error {
        rustls::Error::InconsistentKeys(_) => "key= is not the key of the certificate in cert=".to_owned(),
        error => format!("cert= and key= cannot be used: {error}"),
    };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(no)?.with_root_certificates(roots);
    let mut config = match &material.key {
        None => builder.with_no_client_auth(),
        Some(key) => builder.with_client_auth_cert(material.chain.clone(), key.clone_key()).map_err(no)?,
    };
    // Connections are not resumed: remembered sessions are shared, behind a lock, and a fork's
    // child would have them as well.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn read(option: &str, file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{option}={} cannot be read: {error}", file.display()))
}

fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let no = || format!("{option}={} holds no certificate (PEM)", file.display());
    let all = CertificateDer::pem_slice_iter(&read(option, file)?).collect::<Result<Vec<_>, _>>();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(no)
}

/// The CAs that this system trusts, including those that its owner has added.
fn of_system() -> Result<Vec<CertificateDer<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err("this system has no CAs (name the file of the server's CA: ca=FILE)".to_owned());
    }
    Ok(found.certs)
}

/// The name that the server's certificate must have.
fn name_of(server: &Server) -> Result<ServerName<'static>, String> {
    let name = match (&server.name, &server.address) {
        (Some(name), _) => name.clone(),
        (None, Address::Tcp(host, _)) => host.clone(),
        (None, Address::Unix(_) | Address::List(_)) => String::new(),
    };
    let no = |_| format!("'{name}' is not a name that a certificate can have (name=NAME)");
    ServerName::try_from(name.clone()).map_err(no)
}

/// One connection's TLS.
pub struct Session {
    connection: UnbufferedClientConnection,
    /// The received and unprocessed bytes are those from `from` to `to`.
    incoming: Vec<u8>,
    at: usize,
    from: usize,
    to: usize,
    /// The bytes to send.
    out: Vec<u8>,
    is_up: bool,
    is_closed: bool,
}

impl Session {
    /// A session with a server, which has sent nothing yet.
    ///
    /// # Errors
    /// Why there is none, in one line.
    pub fn new(server: &Server) -> Result<Session, String> {
        let tls = server.tls_with.as_ref().ok_or("its CA is not known")?;
        Session::with(tls, name_of(server)?)
    }

    fn with(tls: &Tls, name: ServerName<'static>) -> Result<Session, String> {
        let connection = UnbufferedClientConnection::new(tls.config()?, name).map_err(|why| told(&why))?;
        let mut incoming = vec![0; ROOM];
        let at = incoming.as_mut_ptr() as usize;
        let out = Vec::new();
        let (is_up, is_closed) = (false, false);
        let mut session = Session { connection, incoming, at, from: 0, to: 0, out, is_up, is_closed };
        session.advance(|_| Ok(()))?;
        Ok(session)
    }

    /// Whether the server is known, and commands may go.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Whether the server has ended the session in good order, as a server does that has to end a
    /// client's connection.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The place for the next bytes from the server.
    pub fn room(&mut self) -> Piece {
        if self.from > 0 {
            self.incoming.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        Piece::new(self.at + self.to, ROOM - self.to)
    }

    /// This number of bytes has arrived. `sink` gets their contents.
    ///
    /// # Errors
    /// The server is not the intended one, or does not speak TLS; or an error of the sink.
    pub fn received(
        &mut self,
        bytes: usize,
        sink: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        self.to += bytes;
        self.advance(sink)?;
        if self.to - self.from == ROOM {
            return Err("a message of TLS is too long".to_owned());
        }
        Ok(())
    }

    /// Encrypts bytes to send, which may be empty: at most a [`RECORD`].
    ///
    /// # Errors
    /// The keys are used up.
    pub fn encrypt(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut sent = false;
        self.turn(Some((bytes, &mut sent)), &mut |_| Ok(()))?;
        if sent { Ok(()) } else { Err("there is no TLS session".to_owned()) }
    }

    /// Takes the bytes to send, in exchange for an empty vector, whose memory is used next.
    pub fn take_out(&mut self, spare: Vec<u8>) -> Vec<u8> {
        debug_assert!(spare.is_empty());
        std::mem::replace(&mut self.out, spare)
    }

    /// The number of bytes to send.
    pub fn out_len(&self) -> usize {
        self.out.len()
    }

    fn advance(&mut self, mut sink: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
        self.turn(None, &mut sink)
    }

    /// Processes the received bytes until nothing is left to do, and then encrypts `what`, if
    /// sending is allowed.
    fn turn(
        &mut self,
        mut what: Option<(&[u8], &mut bool)>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            // SAFETY: these bytes were received, and belong to this session; later bytes go after
            // them.
            let came = unsafe { memory::bytes(self.at + self.from, self.to - self.from) };
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(came);
            let goes_on = match state.map_err(|why| told(&why))? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(|why| told(&why))?;
                        discard += record.discard;
                        sink(record.payload)?;
                    }
                    true
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    append(&mut self.out, MORE, |room| {
                        data.encode(room).map_err(|error| match error {
                            EncodeError::InsufficientSize(size) => Some(size.required_size),
                            EncodeError::AlreadyEncoded => None,
                        })
                    })?;
                    true
                }
                ConnectionState::TransmitTlsData(data) => {
                    // It is in the order of sending.
                    data.done();
                    true
                }
                ConnectionState::WriteTraffic(mut traffic) => {
                    self.is_up = true;
                    if let Some((bytes, sent)) = what.take() {
                        encrypt(&mut self.out, &mut traffic, bytes)?;
                        *sent = true;
                    }
                    false
                }
                ConnectionState::PeerClosed | ConnectionState::Closed => {
                    self.is_closed = true;
                    return Err("the server has closed the connection".to_owned());
                }
                _ => false,
            };
            self.from += discard;
            if !goes_on {
                return Ok(());
            }
        }
    }
}

fn encrypt(
    out: &mut Vec<u8>,
    traffic: &mut rustls::unbuffered::WriteTraffic<'_, ClientConnectionData>,
    bytes: &[u8],
) -> Result<(), String> {
    append(out, bytes.len() + MORE, |room| {
        traffic.encrypt(bytes, room).map_err(|error| match error {
            EncryptError::InsufficientSize(size) => Some(size.required_size),
            EncryptError::EncryptExhausted => None,
        })
    })
}

/// Appends the bytes that `make` writes into a room of `len` bytes, or of as many as it requests.
fn append(
    out: &mut Vec<u8>,
    mut len: usize,
    mut make: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), String> {
    let before = out.len();
    loop {
        out.resize(before + len, 0);
        match make(&mut out[before..]) {
            Ok(made) => {
                out.truncate(before + made);
                return Ok(());
            }
            Err(Some(needed)) if needed > len => len = needed,
            Err(_) => {
                out.truncate(before);
                return Err("nothing more can be encrypted in this session".to_owned());
            }
        }
    }
}

/// The first bytes of a client with TLS, to find out whether a server speaks it.
pub fn first_words() -> Option<Vec<u8>> {
    let name = ServerName::try_from("server").ok()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let connection = UnbufferedClientConnection::new(Arc::new(config), name).ok()?;
    let mut session = Session {
        connection,
        incoming: Vec::new(),
        at: std::ptr::dangling::<u8>() as usize,
        from: 0,
        to: 0,
        out: Vec::new(),
        is_up: false,
        is_closed: false,
    };
    session.advance(|_| Ok(())).ok()?;
    Some(session.take_out(Vec::new()))
}

/// Whether bytes are the beginning of a server's answer in TLS: of a handshake, or an alert.
pub fn is_tls(answer: &[u8]) -> bool {
    matches!(answer, [0x15 | 0x16, 3, ..])
}

/// Whether the first certificate of a PEM text has this public key.
pub fn has_key(pem: &str, key: &[u8]) -> bool {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes());
    certificate.is_ok_and(|certificate| certificate.windows(key.len().max(1)).any(|part| part == key))
}

/// An error in the words for people.
pub fn told(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(bad) => of_certificate(bad),
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS".to_owned(),
        rustls::Error::AlertReceived(alert) => of_alert(*alert),
        rustls::Error::PeerIncompatible(_) => format!(
            "the server offers no version of TLS that is \
                                                       safe: {error}"
        ),
        other => format!("TLS failed: {other}"),
    }
}

fn of_certificate(bad: &CertificateError) -> String {
    use CertificateError as Bad;
    match bad {
        Bad::Expired | Bad::ExpiredContext { .. } => {
            "the server's certificate has expired (make another: terapage far cert)".to_owned()
        }
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet (compare the clocks)".to_owned()
        }
        // By another CA of the same name.
        Bad::UnknownIssuer | Bad::BadSignature => {
            "the server's certificate is not from a CA that is known here (name the CA's file: \
             ca=FILE)"
                .to_owned()
        }
        Bad::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
            format!(
                "the server's certificate is for {names}, not for {} (write name=NAME for the name \
                 to expect)",
                expected.to_str()
            )
        }
        Bad::NotValidForName => {
            "the server's certificate is for another name (write name=NAME for the name to expect)".to_owned()
        }
        Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => {
            "the server's certificate is not made for servers".to_owned()
        }
        other => format!("the server's certificate cannot be used: {other}"),
    }
}

/// `DnsName("host")` without the text around the name.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, rest)| rest);
    inner.trim_matches(|c| "()\"".contains(c))
}

fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server asks for a certificate of its clients (cert=FILE&key=FILE)".to_owned()
        }
        AlertDescription::UnknownCA => {
            "the server does not know the CA of this client's certificate (cert=FILE)".to_owned()
        }
        AlertDescription::CertificateExpired => {
            "this client's certificate has expired (make another: terapage far cert)".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked => {
            format!("the server refuses this client's certificate: {alert:?}")
        }
        AlertDescription::HandshakeFailure => {
            "the server refuses the connection by TLS; it may ask for a certificate \
             (cert=FILE&key=FILE)"
                .to_owned()
        }
        other => format!("the server ends TLS: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_is_what_was_read() {
        let part = |byte: u8, len: usize| CertificateDer::from(vec![byte; len]);
        let tls = Tls::of(vec![part(1, 300), part(2, 0)], vec![part(3, 5)], None).unwrap();
        let bytes = tls.to_bytes();
        let back = Tls::from_bytes(&bytes).unwrap();
        assert_eq!((&back.0.roots, &back.0.chain), (&tls.0.roots, &tls.0.chain));
        assert!(
            Tls::from_bytes(&bytes[..bytes.len() - 1]).is_err() && Tls::from_bytes(b"rightword").is_err()
        );
        assert!(tls.check().unwrap_err().contains("ca="));
    }

    #[test]
    fn a_client_begins_with_a_handshake() {
        assert!(is_tls(&first_words().unwrap()));
        assert!(!is_tls(b"-ERR unknown command") && !is_tls(b""));
    }

    /// A server with a certificate for `name` of a private CA, and a client that knows the CA.
    fn pair(name: &str) -> (rustls::ServerConnection, Tls) {
        let (server, tls) = settings(name);
        (rustls::ServerConnection::new(server).unwrap(), tls)
    }

    /// The settings of the two.
    fn settings(name: &str) -> (Arc<rustls::ServerConfig>, Tls) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        let issuer = rcgen::Issuer::new(params, key);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let tls = Tls::of(vec![root.der().clone()], Vec::new(), None).unwrap();
        (Arc::new(server), tls)
    }

    /// Transfers bytes between the two in parts, until neither has more; returns the client's
    /// bytes.
    fn carry(
        server: &mut rustls::ServerConnection,
        client: &mut Session,
        step: usize,
        seen: &mut Vec<u8>,
    ) -> Result<Vec<u8>, String> {
        use std::io::Read;
        let mut got = Vec::new();
        loop {
            let out = client.take_out(Vec::new());
            let mut to_client = Vec::new();
            for mut part in out.chunks(step) {
                while !part.is_empty() {
                    server.read_tls(&mut part).unwrap();
                    server.process_new_packets().ok();
                    server.reader().read_to_end(seen).ok();
                }
            }
            while server.wants_write() {
                server.write_tls(&mut to_client).unwrap();
            }
            if out.is_empty() && to_client.is_empty() {
                return Ok(got);
            }
            let mut rest = &to_client[..];
            while !rest.is_empty() {
                let room = client.room();
                let (now, later) = rest.split_at(step.min(rest.len()).min(room.len()));
                // SAFETY: the session's room, which has no other user.
                unsafe { memory::bytes(room.at(), now.len()) }.copy_from_slice(now);
                client.received(now.len(), |bytes| {
                    got.extend_from_slice(bytes);
                    Ok(())
                })?;
                rest = later;
            }
        }
    }

    #[test]
    fn bytes_go_both_ways_however_they_are_cut() {
        use std::io::Write;
        for step in [1, 7, 1000, 1 << 20] {
            let (mut server, tls) = pair("far1.example");
            let mut client = Session::with(&tls, "far1.example".try_into().unwrap()).unwrap();
            let mut seen = Vec::new();
            assert_eq!(carry(&mut server, &mut client, step, &mut seen).unwrap(), b"");
            assert!(client.is_up());
            let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
            server.set_buffer_limit(None);
            server.writer().write_all(&bytes).unwrap();
            bytes.chunks(RECORD).for_each(|part| client.encrypt(part).unwrap());
            assert_eq!(carry(&mut server, &mut client, step, &mut seen).unwrap(), bytes);
            assert!(seen == bytes, "{} bytes", seen.len());
        }
    }

    /// A server's answers to the commands that come together, in order. Without answers it ends the
    /// session at once.
    fn serve(listener: &std::net::TcpListener, config: &Arc<rustls::ServerConfig>, answers: &[&[u8]]) {
        use std::io::{Read, Write};
        let (stream, _) = listener.accept().unwrap();
        let connection = rustls::ServerConnection::new(config.clone()).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, stream);
        for answer in answers {
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            stream.write_all(answer).unwrap();
        }
        if answers.is_empty() {
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock).unwrap();
            }
            stream.conn.send_close_notify();
        }
        stream.flush().unwrap();
    }

    #[test]
    fn blocks_are_removed_by_another_session_if_the_server_ends_one() {
        use crate::holder::Holder;
        use crate::life::let_go;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (config, tls) = settings("far1.example");
        let mut server = Server::parse(&format!("valkeys://127.0.0.1:{port}?name=far1.example")).unwrap();
        server.tls_with = Some(tls);
        let space = crate::namespace::Namespace::of("", 1);
        let holder = Holder::of_this_process(&space);
        let served = std::thread::spawn(move || {
            serve(&listener, &config, &[]);
            let held = b":1\r\n*2\r\n$3\r\nh:1\r\n$5\r\nchild\r\n";
            serve(&listener, &config, &[b"+OK\r\n", b"$0\r\n\r\n", held]);
        });
        let_go(&server, &space, &holder, std::time::Duration::from_secs(30), &[]).unwrap();
        served.join().unwrap();
    }

    #[test]
    fn a_server_of_another_name_or_ca_is_refused() {
        let (mut server, tls) = pair("far1.example");
        let mut client = Session::with(&tls, "far2.example".try_into().unwrap()).unwrap();
        let why = carry(&mut server, &mut client, 1000, &mut Vec::new()).unwrap_err();
        assert!(why.contains("is for far1.example, not for far2.example"), "{why}");
        let (mut server, _) = pair("far1.example");
        let mut client = Session::with(&tls, "far1.example".try_into().unwrap()).unwrap();
        let why = carry(&mut server, &mut client, 1000, &mut Vec::new()).unwrap_err();
        assert!(why.contains("ca="), "{why}");
    }

    #[test]
    fn names_are_shown_bare() {
        assert_eq!(bare("DnsName(\"far1.example\")"), "far1.example");
        assert_eq!(bare("IpAddress(10.0.0.7)"), "10.0.0.7");
    }
}
