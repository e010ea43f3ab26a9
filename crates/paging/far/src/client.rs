//! A connection that waits for its answers, for four uses: the start, the end, before a fork, and
//! the commands of `terapage far`.

use crate::resp::{self, Reply};
use crate::tls::{self, Session};
use crate::url::{Address, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Why a server cannot be used. The messages do not name it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its name has no address.
    #[error("cannot be found: {0}")]
    Name(std::io::Error),
    /// No connection is available.
    #[error("cannot be connected to: {0}")]
    Connect(std::io::Error),
    /// The connection broke, or nothing arrived in time.
    #[error("does not answer: {0}")]
    Broken(std::io::Error),
    /// The received bytes are not a reply.
    #[error("is no Valkey server: {0}")]
    Malformed(#[from] resp::Malformed),
    /// The server says no.
    #[error("refuses: {0}")]
    Refused(String),
    /// TLS with the server is impossible.
    #[error("cannot be spoken to by TLS: {0}")]
    Tls(String),
    /// The server speaks TLS, and the client did not.
    #[error("speaks TLS on this port (write valkeys://, with ca=FILE)")]
    WantsTls,
    /// The client spoke TLS, and the server does not.
    #[error("speaks no TLS on this port (name the port that does, or write valkey://)")]
    WantsNoTls,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn within(&self, time: Duration) -> std::io::Result<()> {
        let time = Some(time.max(Duration::from_millis(1)));
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(time).and(stream.set_write_timeout(time)),
            Stream::Unix(stream) => stream.set_read_timeout(time).and(stream.set_write_timeout(time)),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// Repeats an interrupted read: the completion of an operation of this thread's ring interrupts
    /// calls with a time limit.
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let got = match self {
                Stream::Tcp(stream) => stream.read(bytes),
                Stream::Unix(stream) => stream.read(bytes),
            };
            match got {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                got => return got,
            }
        }
    }
}

/// Such a connection.
pub struct Client {
    stream: Stream,
    tls: Option<Box<Session>>,
    pending: Vec<u8>,
    until: Instant,
}

/// The addresses of a host.
pub fn resolve(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    let all: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    if all.is_empty() { Err(std::io::ErrorKind::NotFound.into()) } else { Ok(all) }
}

/// The command that begins a connection: protocol, name and password in one.
pub fn hello(server: &Server) -> Vec<Vec<u8>> {
    let mut words = vec![b"HELLO".to_vec(), b"2".to_vec()];
    if let Some(password) = &server.password {
        let user = server.user.as_deref().unwrap_or("default");
        words.extend([b"AUTH".to_vec(), user.into(), password.bytes().to_vec()]);
    }
    words.extend([b"SETNAME".to_vec(), b"terapage".to_vec()]);
    words
}

impl Client {
    /// Connects and logs in; from here on every answer must come within `time`.
    ///
    /// # Errors
    /// No connection, no such user, or a wrong password.
    pub fn connect(server: &Server, time: Duration) -> Result<Client, Error> {
        let until = Instant::now() + time;
        let tls = server.tls.then(|| Session::new(server).map(Box::new)).transpose().map_err(Error::Tls)?;
        let mut client = Client { stream: connect(server, until)?, tls, pending: Vec::new(), until };
        client.agree()?;
        let words = hello(server);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        client.call(&words)?;
        if server.database != 0 {
            client.call(&[b"SELECT", server.database.to_string().as_bytes()])?;
        }
        Ok(client)
    }

    /// Waits until TLS is negotiated, if it is used.
    fn agree(&mut self) -> Result<(), Error> {
        while self.tls.as_ref().is_some_and(|tls| !tls.is_up()) {
            self.flush()?;
            self.read_some()?;
        }
        self.flush()
    }

    /// Sends the pending bytes of TLS.
    fn flush(&mut self) -> Result<(), Error> {
        let Some(tls) = self.tls.as_mut().filter(|tls| tls.out_len() > 0) else { return Ok(()) };
        let out = tls.take_out(Vec::new());
        self.in_time()?;
        self.stream.write_all(&out).map_err(late)
    }

    fn write(&mut self, text: &[u8]) -> Result<(), Error> {
        let Some(tls) = &mut self.tls else {
            self.in_time()?;
            return self.stream.write_all(text).map_err(late);
        };
        text.chunks(tls::RECORD).try_for_each(|part| tls.encrypt(part)).map_err(Error::Tls)?;
        let sent = self.flush();
        // If a server has hung up, its reason may have arrived.
        if sent.is_err()
            && let Err(Error::Tls(why)) = self.read_some()
        {
            return Err(Error::Tls(why));
        }
        sent
    }

    /// Waits for bytes.
    fn read_some(&mut self) -> Result<(), Error> {
        self.in_time()?;
        let ended = || Error::Broken(std::io::ErrorKind::UnexpectedEof.into());
        let Some(tls) = &mut self.tls else {
            let mut bytes = [0; 8192];
            return match self.stream.read(&mut bytes).map_err(late)? {
                0 => Err(ended()),
                got => {
                    self.pending.extend_from_slice(&bytes[..got]);
                    Ok(())
                }
            };
        };
        let room = tls.room();
        // SAFETY: the session's room, which has no other user.
        let room = unsafe { terapage_sys::memory::bytes(room.at(), room.len()) };
        let got = self.stream.read(room).map_err(late)?;
        if got == 0 {
            return Err(ended());
        }
        let pending = &mut self.pending;
        let received = tls.received(got, |bytes| {
            pending.extend_from_slice(bytes);
            Ok(())
        });
        match received {
            Err(_) if tls.is_closed() => return Err(ended()),
            other => other.map_err(Error::Tls)?,
        }
        self.flush()
    }

    /// All following requests must be answered within `time` from now on.
    pub fn within(&mut self, time: Duration) {
        self.until = Instant::now() + time;
    }

    /// A command and its reply.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Reply, Error> {
        match self.ask(&[words])?.pop() {
            Some(Reply::Error(why)) => Err(Error::Refused(why)),
            Some(reply) => Ok(reply),
            None => Err(Error::Broken(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Several commands at once, and their replies, some of which may be refusals.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn ask(&mut self, commands: &[&[&[u8]]]) -> Result<Vec<Reply>, Error> {
        let mut text = Vec::new();
        commands.iter().for_each(|words| resp::command(&mut text, words));
        self.write(&text)?;
        commands.iter().map(|_| self.reply()).collect()
    }

    fn in_time(&self) -> Result<(), Error> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Broken(std::io::ErrorKind::TimedOut.into()));
        }
        self.stream.within(left).map_err(Error::Broken)
    }

    fn reply(&mut self) -> Result<Reply, Error> {
        loop {
            if let Some((reply, used)) = resp::parse(&self.pending)? {
                self.pending.drain(..used);
                if !matches!(reply, Reply::Push(_)) {
                    return Ok(reply);
                }
                continue;
            }
            self.read_some()?;
        }
    }
}

/// A stream to a server.
fn connect(server: &Server, until: Instant) -> Result<Stream, Error> {
    let (host, port) = match &server.address {
        Address::Unix(path) => return UnixStream::connect(path).map(Stream::Unix).map_err(Error::Connect),
        Address::Tcp(host, port) => (host, *port),
        Address::List(_) => {
            let why = "it is a list: name one of its servers";
            return Err(Error::Name(std::io::Error::new(std::io::ErrorKind::InvalidInput, why)));
        }
    };
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    let all = match &server.numbers[..] {
        [] => resolve(host, port).map_err(Error::Name)?,
        numbers => numbers.iter().map(|&number| SocketAddr::new(number, port)).collect(),
    };
    let connected = all.iter().find_map(|address| {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        TcpStream::connect_timeout(address, left).map_err(|error| last = error).ok()
    });
    let stream = connected.ok_or(last).map_err(Error::Connect)?;
    stream.set_nodelay(true).ok();
    Ok(Stream::Tcp(stream))
}

/// How long to wait for a server's first bytes, which show whether it speaks TLS.
const LISTEN: Duration = Duration::from_secs(1);

/// Connects to a server for the first time. If that fails, finds out whether only one side speaks
/// TLS.
///
/// # Errors
/// As for [`Client::connect`].
pub fn first(server: &Server, time: Duration) -> Result<Client, Error> {
    // One that speaks no TLS may wait for the end of a line for ever.
    let short = if server.tls { LISTEN.min(time) } else { time };
    let error = match Client::connect(server, short) {
        Err(error) => error,
        client => return client,
    };
    let is_mute = matches!(&error, Error::Broken(_) | Error::Tls(_) | Error::Malformed(_));
    let answer = |words: &[u8]| if is_mute { first_answer(server, words) } else { None };
    if !server.tls {
        let is_other = tls::first_words().and_then(|words| answer(&words)).is_some_and(|it| tls::is_tls(&it));
        return Err(if is_other { Error::WantsTls } else { error });
    }
    match answer(b"PING\r\n") {
        Some(answer) if answer.starts_with(b"+") || answer.starts_with(b"-") => Err(Error::WantsNoTls),
        _ if matches!(&error, Error::Broken(why) if why.kind() == std::io::ErrorKind::TimedOut) => {
            Client::connect(server, time)
        }
        _ => Err(error),
    }
}

/// A server's answer to some bytes.
fn first_answer(server: &Server, words: &[u8]) -> Option<Vec<u8>> {
    let mut stream = connect(server, Instant::now() + LISTEN).ok()?;
    stream.within(LISTEN).ok()?;
    stream.write_all(words).ok()?;
    let mut answer = vec![0; 64];
    let got = stream.read(&mut answer).ok()?;
    answer.truncate(got);
    Some(answer)
}

/// An expired time limit is reported as such.
fn late(error: std::io::Error) -> Error {
    Error::Broken(match error.kind() {
        std::io::ErrorKind::WouldBlock => std::io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}
