//! A connection that waits for its answers: for what is done at the start, at the end, before a
//! fork, and by commands of `terapage far`.

use crate::resp::{self, Reply};
use crate::url::{Address, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Why a server cannot be spoken to. The messages do not name it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its name has no address.
    #[error("is not to be found: {0}")]
    Name(std::io::Error),
    /// There is no connection to be had.
    #[error("cannot be connected to: {0}")]
    Connect(std::io::Error),
    /// The connection broke, or nothing came in time.
    #[error("does not answer: {0}")]
    Broken(std::io::Error),
    /// What came is no reply.
    #[error("is no Valkey server: {0}")]
    Malformed(#[from] resp::Malformed),
    /// The server says no.
    #[error("refuses: {0}")]
    Refused(String),
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

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }
}

/// Such a connection.
pub struct Client {
    stream: Stream,
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
    /// Connects and says who this is; from here on all must be answered within `time`.
    ///
    /// # Errors
    /// No connection, no such user, a wrong password.
    pub fn connect(server: &Server, time: Duration) -> Result<Client, Error> {
        let until = Instant::now() + time;
        let stream = match &server.address {
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path).map_err(Error::Connect)?),
            Address::Tcp(host, port) => {
                let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
                let all = match &server.numbers[..] {
                    [] => resolve(host, *port).map_err(Error::Name)?,
                    numbers => numbers.iter().map(|&number| SocketAddr::new(number, *port)).collect(),
                };
                let connected = all.iter().find_map(|address| {
                    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                    TcpStream::connect_timeout(address, left).map_err(|error| last = error).ok()
                });
                let stream = connected.ok_or(last).map_err(Error::Connect)?;
                stream.set_nodelay(true).ok();
                Stream::Tcp(stream)
            }
        };
        let mut client = Client { stream, pending: Vec::new(), until };
        let words = hello(server);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        client.call(&words)?;
        if server.database != 0 {
            client.call(&[b"SELECT", server.database.to_string().as_bytes()])?;
        }
        Ok(client)
    }

    /// All that follows must be answered within `time` from now on.
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

    /// Several commands at once, and their replies, of which some may be refusals.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn ask(&mut self, commands: &[&[&[u8]]]) -> Result<Vec<Reply>, Error> {
        let mut text = Vec::new();
        commands.iter().for_each(|words| resp::command(&mut text, words));
        self.in_time()?;
        self.stream.write_all(&text).map_err(late)?;
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
            self.in_time()?;
            let mut bytes = [0; 8192];
            match self.stream.read(&mut bytes).map_err(late)? {
                0 => return Err(Error::Broken(std::io::ErrorKind::UnexpectedEof.into())),
                got => self.pending.extend_from_slice(&bytes[..got]),
            }
        }
    }
}

/// A time that is over is told as such.
fn late(error: std::io::Error) -> Error {
    Error::Broken(match error.kind() {
        std::io::ErrorKind::WouldBlock => std::io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}
