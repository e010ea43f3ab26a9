//! Names of memory servers: `valkey://user:password@host:6379/0?prefix=team1&stall=10s`.

use crate::tls::Tls;
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// The default port, and that of a sentinel.
pub(crate) const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The default time without an answer from a server before the program is stopped.
const STALL: Duration = Duration::from_secs(30);

/// The default time without a sign of life before blocks are swept.
const GRACE: Duration = Duration::from_secs(3600);

/// The longest possible setting.
const STALL_MAX: Duration = Duration::from_secs(24 * 3600);

/// The variable that names a file with the password.
pub const PASSWORD_FILE: &str = "TERAPAGE_STORE_PASSWORD_FILE";

/// The schemes that this reads.
pub const SCHEMES: [&str; 9] = [
    "valkey",
    "valkeys",
    "redis",
    "rediss",
    "valkey+unix",
    "redis+unix",
    "unix",
    "valkey+list",
    "valkeys+list",
];

/// The address at which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host, by name or number, and a port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
    /// Those in a file, which may change.
    List(PathBuf),
}

/// A password: never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The bytes that are sent to the server.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Secret {
    /// Reads it from a file, whose last line break is not part of it. The error follows the file's
    /// name.
    pub fn read(file: &std::path::Path) -> Result<Secret, String> {
        Secret::of(&std::fs::read(file).map_err(|error| format!("cannot be read: {error}"))?)
    }

    /// The password in the contents of such a file.
    pub(crate) fn of(bytes: &[u8]) -> Result<Secret, String> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.is_empty() || bytes.len() > 512 {
            return Err("holds no password".to_owned());
        }
        Ok(Secret(bytes.to_vec()))
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Secret {
        Secret(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// A memory server, and the options for its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it listens.
    pub address: Address,
    /// Whether to use TLS.
    pub tls: bool,
    /// The user; `None` is the server's default one.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: u32,
    /// The prefix of keys, before a colon; may be empty.
    pub prefix: String,
    /// Bytes that this process may keep there.
    pub limit_bytes: Option<u64>,
    /// The time after which a missing answer is an error.
    pub stall: Duration,
    /// The host's addresses, if they are known.
    pub numbers: Vec<IpAddr>,
    /// More hosts and ports: of a cluster, or of sentinels.
    pub seeds: Vec<(String, u16)>,
    /// Whether it is a cluster; `None`: the server is asked.
    pub cluster: Option<bool>,
    /// The hosts are sentinels, which know the server by this name.
    pub sentinel: Option<String>,
    /// The time without a sign of life after which this process, when idle, removes another's
    /// blocks.
    pub grace: Duration,
    /// An open file of this process with the password.
    pub secret: Option<i32>,
    /// The file that the password is from: it may hold another one later.
    pub password_file: Option<PathBuf>,
    /// It is a spare of a mirror, in the place of a copy that gives no answer for so long.
    pub spare: Option<Duration>,
    /// Whether blocks are encrypted before they are sent; `None`: depending on the place of the
    /// server.
    pub encrypt: Option<bool>,
    /// The files of the CA, of the client's certificate, and of its key.
    pub files: Files,
    /// The name that the server's certificate must have, if it is not the host's.
    pub name: Option<String>,
    /// An open file of this process with the contents of those files.
    pub handed: Option<i32>,
    /// The contents of the files, once they were read.
    pub tls_with: Option<Tls>,
}

/// The files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The CA that signed the server's certificate; none: the system's CAs.
    pub ca: Option<PathBuf>,
    /// The certificate that the server requires of its clients, and the chain to its CA.
    pub cert: Option<PathBuf>,
    /// Of the key to that certificate.
    pub key: Option<PathBuf>,
}

impl Server {
    /// Whether `text` begins as a server's name does.
    pub fn is_one(text: &[u8]) -> bool {
        let scheme = text.split(|&b| b == b':').next().unwrap_or_default();
        scheme.len() < text.len() && SCHEMES.iter().any(|known| known.as_bytes() == scheme)
    }

    /// Reads a name. The error says what is wrong in one line, and never contains a password.
    pub fn parse(text: &str) -> Result<Server, String> {
        if text.contains(char::is_control) {
            return Err("a server's name holds a control character".to_owned());
        }
        let (scheme, rest) = text.split_once(':').ok_or("a server's name begins with valkey://")?;
        let is_unix = matches!(scheme, "valkey+unix" | "redis+unix" | "unix");
        let is_list = matches!(scheme, "valkey+list" | "valkeys+list");
        if !SCHEMES.contains(&scheme) {
            return Err(format!("servers of kind '{scheme}:' are unknown (write valkey://HOST)"));
        }
        let rest = rest.strip_prefix("//").ok_or_else(|| format!("write {scheme}://, with two slashes"))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        if rest.contains('#') || options.contains('#') {
            return Err("a '#' in a server's name is written %23".to_owned());
        }
        let edge = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(edge);
        let (who, place) = authority.rsplit_once('@').map_or((None, authority), |(who, at)| (Some(who), at));
        let names = |option: &str| options.split('&').any(|named| named.split('=').next() == Some(option));
        let port = if names("sentinel") { SENTINEL_PORT } else { PORT };
        let (address, seeds) = match (is_unix, is_list) {
            (true, _) => (unix(place, path)?, Vec::new()),
            (_, true) => (list(place, path)?, Vec::new()),
            _ => hosts(place, port)?,
        };
        let mut server = Server {
            address,
            tls: matches!(scheme, "valkeys" | "rediss" | "valkeys+list"),
            user: None,
            password: None,
            database: 0,
            prefix: String::new(),
            limit_bytes: None,
            stall: STALL,
            numbers: Vec::new(),
            seeds,
            cluster: None,
            sentinel: None,
            grace: GRACE,
            spare: None,
            secret: None,
            password_file: None,
            encrypt: None,
            files: Files::default(),
            name: None,
            handed: None,
            tls_with: None,
        };
        if let Some(who) = who {
            server.take_user(who)?;
        }
        if !is_unix && !is_list && !matches!(path, "" | "/") {
            server.database = database(&path[1..])?;
        }
        for option in options.split('&').filter(|option| !option.is_empty()) {
            server.take_option(option)?;
        }
        server.fits_together()?;
        if server.files.cert.is_some() != server.files.key.is_some() {
            return Err("cert= and key= go together: a certificate and its key".to_owned());
        }
        Ok(server)
    }

    /// Checks that the options agree with each other.
    fn fits_together(&self) -> Result<(), String> {
        let is_several = self.cluster == Some(true) || self.sentinel.is_some();
        if !self.seeds.is_empty() && !is_several {
            return Err("each server needs a --store (or write cluster=yes or sentinel=NAME)".to_owned());
        }
        if is_several && !matches!(self.address, Address::Tcp(..)) {
            return Err("clusters and sentinels are named by hosts, not by a file".to_owned());
        }
        if self.spare.is_some() && matches!(self.address, Address::List(_)) {
            return Err("spare= is for one server: the servers of a list replace each other".to_owned());
        }
        if self.sentinel.is_some() && self.cluster == Some(true) {
            return Err("a cluster has no sentinels: write cluster=yes or sentinel=NAME".to_owned());
        }
        Ok(())
    }

    /// The same, except for the address of the server.
    pub fn at(&self, address: std::net::SocketAddr) -> Server {
        Server {
            address: Address::Tcp(address.ip().to_string(), address.port()),
            numbers: vec![address.ip()],
            seeds: Vec::new(),
            cluster: Some(false),
            sentinel: None,
            ..self.clone()
        }
    }

    /// A sentinel at this address, which is asked only for a server's address.
    pub fn sentinel_at(&self, address: std::net::SocketAddr, with_password: bool) -> Server {
        let password = self.password.clone().filter(|_| with_password);
        Server { database: 0, password, ..self.at(address) }
    }

    fn take_user(&mut self, who: &str) -> Result<(), String> {
        let (user, password) = who.split_once(':').map_or((who, None), |(user, word)| (user, Some(word)));
        let user = String::from_utf8(decode(user)?).map_err(|_| "the user's name is not UTF-8")?;
        self.user = Some(user).filter(|user| !user.is_empty());
        self.password = password.map(decode).transpose()?.filter(|word| !word.is_empty()).map(Secret);
        Ok(())
    }

    fn take_option(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = String::from_utf8(decode(value)?).map_err(|_| format!("{name}= is not UTF-8"))?;
        match name {
            "db" => self.database = database(&value)?,
            "prefix" => {
                let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
                if value.is_empty() || value.len() > 64 || !value.bytes().all(fits) {
                    return Err("prefix= takes letters, digits and -_.: (64 at most)".to_owned());
                }
                self.prefix = value;
            }
            "cluster" => {
                self.cluster = Some(match &*value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err("cluster= takes yes or no".to_owned()),
                });
            }
            "sentinel" => {
                let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
                if value.is_empty() || value.len() > 64 || !value.bytes().all(fits) {
                    return Err("sentinel= takes the name by which sentinels know the server".to_owned());
                }
                self.sentinel = Some(value);
            }
            "grace" => self.grace = duration("grace", "1h", &value)?,
            "spare" => self.spare = Some(duration("spare", "1m", &value)?),
            "limit" => self.limit_bytes = Some(bytes(&value)?),
            "stall" => self.stall = duration("stall", "30s", &value)?,
            "user" => self.user = Some(value),
            "ip" => {
                let numbers = value.split(',').map(str::parse).collect::<Result<_, _>>();
                self.numbers = numbers.map_err(|_| "ip= takes addresses of hosts, as in ip=10.0.0.7")?;
            }
            "secret" => self.secret = Some(value.parse().map_err(|_| "secret= takes a descriptor")?),
            "password" => return Err("a password is written before the host, or in a file".to_owned()),
            "encrypt" => {
                self.encrypt = Some(match &*value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err("encrypt= takes yes or no".to_owned()),
                });
            }
            "ca" | "cert" | "key" | "name" | "tls" => self.take_tls(name, value)?,
            _ => {
                let name: String = name.chars().take(40).collect();
                return Err(format!(
                    "a server has no option '{name}' (known are db, limit, prefix, stall, grace, spare, user, encrypt, cluster, sentinel, ca, cert, key, name)"
                ));
            }
        }
        Ok(())
    }

    fn take_tls(&mut self, name: &str, value: String) -> Result<(), String> {
        if !self.tls {
            return Err(format!("{name}= is for TLS (valkeys://)"));
        }
        if value.is_empty() {
            return Err(format!("{name}= is empty"));
        }
        match name {
            "ca" => self.files.ca = Some(value.into()),
            "cert" => self.files.cert = Some(value.into()),
            "key" => self.files.key = Some(value.into()),
            "name" => self.name = Some(value),
            _ => self.handed = Some(value.parse().map_err(|_| "tls= takes a descriptor")?),
        }
        Ok(())
    }

    /// Whether blocks are sent as ciphertext: according to its name; otherwise, if `by_default`,
    /// unless they stay on this machine, or go by TLS to a server that the user's own CA has
    /// certified.
    pub fn wants_cipher(&self, by_default: bool) -> bool {
        let is_own = matches!(self.address, Address::Unix(_)) || self.tls && self.files.ca.is_some();
        self.encrypt.unwrap_or(by_default && !is_own)
    }

    /// The name for messages: only the address of the server.
    pub fn shown(&self) -> String {
        let named = self.sentinel.as_ref().map(|name| format!("?sentinel={name}")).unwrap_or_default();
        self.place() + &named
    }

    fn place(&self) -> String {
        let tls = if self.tls { "s" } else { "" };
        match &self.address {
            Address::Tcp(host, port) => {
                let first = std::iter::once((host, port));
                let all = first.chain(self.seeds.iter().map(|(host, port)| (host, port)));
                let all = all.map(|(host, port)| {
                    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
                });
                format!("valkey{tls}://{}", all.collect::<Vec<_>>().join(","))
            }
            Address::Unix(path) => format!("valkey+unix://{}", path.display()),
            Address::List(path) => format!("valkey{tls}+list://{}", path.display()),
        }
    }

    /// The whole name without the password, as [`parse`](Self::parse) reads it.
    pub fn without_password(&self) -> String {
        let tls = if self.tls { "s" } else { "" };
        let mut name = match &self.address {
            Address::Tcp(..) => self.place(),
            Address::Unix(path) => format!("valkey+unix://{}", encode(path.as_os_str().as_bytes(), b"/")),
            Address::List(path) => {
                format!("valkey{tls}+list://{}", encode(path.as_os_str().as_bytes(), b"/"))
            }
        };
        let mut mark = '?';
        let mut add = |key: &str, value: &str| {
            let value = encode(value.as_bytes(), b":,/");
            write!(name, "{mark}{key}={value}").expect("a text takes it");
            mark = '&';
        };
        if let Some(user) = &self.user {
            add("user", user);
        }
        if self.database != 0 {
            add("db", &self.database.to_string());
        }
        if !self.prefix.is_empty() {
            add("prefix", &self.prefix);
        }
        if let Some(limit) = self.limit_bytes {
            add("limit", &limit.to_string());
        }
        if self.stall != STALL {
            add("stall", &format!("{}ms", self.stall.as_millis()));
        }
        if self.grace != GRACE {
            add("grace", &format!("{}ms", self.grace.as_millis()));
        }
        if let Some(spare) = self.spare {
            add("spare", &format!("{}ms", spare.as_millis()));
        }
        if let Some(is_cluster) = self.cluster {
            add("cluster", if is_cluster { "yes" } else { "no" });
        }
        if let Some(name) = &self.sentinel {
            add("sentinel", name);
        }
        if !self.numbers.is_empty() {
            let numbers: Vec<String> = self.numbers.iter().map(IpAddr::to_string).collect();
            add("ip", &numbers.join(","));
        }
        if let Some(secret) = self.secret {
            add("secret", &secret.to_string());
        }
        if let Some(encrypt) = self.encrypt {
            add("encrypt", if encrypt { "yes" } else { "no" });
        }
        let files = [("ca", &self.files.ca), ("cert", &self.files.cert), ("key", &self.files.key)];
        for (key, file) in files {
            if let Some(file) = file.as_ref().and_then(|file| file.to_str()) {
                add(key, file);
            }
        }
        if let Some(name) = &self.name {
            add("name", name);
        }
        if let Some(handed) = self.handed {
            add("tls", &handed.to_string());
        }
        name
    }
}

/// One host and port, or several with commas between.
fn hosts(place: &str, port: u16) -> Result<(Address, Vec<(String, u16)>), String> {
    let mut all = place.split(',').map(|place| tcp(place, port)).collect::<Result<Vec<_>, _>>()?;
    let (host, port) = all.remove(0);
    Ok((Address::Tcp(host, port), all))
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`.
pub(crate) fn tcp(place: &str, default: u16) -> Result<(String, u16), String> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("a ']' is missing after the address")?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
        }
        None => place.split_once(':').map_or((place, Some("")), |(host, port)| (host, Some(port))),
    };
    let wrong_port = || "the port is not a number from 1 to 65535".to_owned();
    let port = match port.ok_or_else(wrong_port)? {
        "" => default,
        port => port.parse().ok().filter(|&port| port > 0).ok_or_else(wrong_port)?,
    };
    let host = String::from_utf8(decode(host)?).map_err(|_| "the host's name is not UTF-8")?;
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.:%".contains(&b);
    if host.is_empty() || host.len() > 253 || !host.bytes().all(fits) {
        return Err("a server's name has no host (write valkey://HOST:PORT)".to_owned());
    }
    Ok((host, port))
}

fn unix(place: &str, path: &str) -> Result<Address, String> {
    let path = OsString::from_vec(decode(path)?);
    // The capacity of `sun_path`, with the zero byte at its end.
    if !place.is_empty() || path.len() < 2 || path.len() > 107 || path.as_bytes().contains(&0) {
        return Err("a socket is named by its path (write valkey+unix:///run/valkey.sock)".to_owned());
    }
    Ok(Address::Unix(path.into()))
}

fn list(place: &str, path: &str) -> Result<Address, String> {
    let path = OsString::from_vec(decode(path)?);
    if !place.is_empty() || path.len() < 2 || path.as_bytes().contains(&0) {
        return Err("a list is named by its path (write valkey+list:///etc/terapage/servers)".to_owned());
    }
    Ok(Address::List(path.into()))
}

fn database(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "the database is not a number".to_owned())
}

/// `64G`, `1.5T`, `1048576`.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "limit= takes a size, as in limit=64G".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches(['B', 'I']) {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number * (1_u64 << shift) as f64;
    if !(bytes >= 1.0 && bytes <= (1_u64 << 62) as f64) {
        return Err(wrong());
    }
    Ok(bytes as u64)
}

/// `30s`, `500ms`, `2m`, `30`.
fn duration(option: &str, example: &str, text: &str) -> Result<Duration, String> {
    let wrong = || format!("{option}= takes a time from 100ms to 24h, as in {option}={example}");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let seconds: f64 = digits.parse::<f64>().map_err(|_| wrong())? * unit;
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if time < Duration::from_millis(100) || time > STALL_MAX {
        return Err(wrong());
    }
    Ok(time)
}

/// Undoes the percent encoding.
fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("a '%' in a server's name is followed by two hexadecimal digits (%25)".to_owned());
        };
        out.push((high * 16 + low) as u8);
    }
    Ok(out)
}

/// The percent encoding of all but letters, digits, `-_.~` and `more`.
fn encode(bytes: &[u8], more: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || more.contains(&byte) {
            out.push(byte.into());
        } else {
            write!(out, "%{byte:02X}").expect("a text takes it");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_say_what_they_mean() {
        let server =
            Server::parse("valkey://me:p%40ss%3a@far-1:7000/3?prefix=t:1&limit=64G&stall=500ms").unwrap();
        assert_eq!(server.address, Address::Tcp("far-1".into(), 7000));
        assert_eq!(server.user.as_deref(), Some("me"));
        assert_eq!(server.password.as_ref().unwrap().bytes(), b"p@ss:");
        assert_eq!((server.database, &*server.prefix), (3, "t:1"));
        assert_eq!(server.limit_bytes, Some(64 << 30));
        assert_eq!(server.stall, Duration::from_millis(500));
        assert_eq!(Server::parse("redis://[::1]").unwrap().address, Address::Tcp("::1".into(), 6379));
        assert!(Server::parse("rediss://a").unwrap().tls);
        let several = Server::parse("valkey://a,[::1]:7001?sentinel=m").unwrap();
        assert_eq!(several.shown(), "valkey://a:26379,[::1]:7001?sentinel=m");
        assert_eq!(Server::parse("valkey://a,b:7?cluster=yes").unwrap().seeds, [("b".to_owned(), 7)]);
        let local = Server::parse("valkey+unix:///run/a%20b.sock?db=2").unwrap();
        assert_eq!((local.address, local.database), (Address::Unix("/run/a b.sock".into()), 2));
        let only_word = Server::parse("valkey://:pw@h").unwrap();
        assert_eq!((only_word.user, only_word.password), (None, Some(Secret(b"pw".to_vec()))));
    }

    #[test]
    fn blocks_are_encrypted_where_others_may_read_them() {
        let wants = |name: &str| {
            let server = Server::parse(name).unwrap();
            [server.wants_cipher(true), server.wants_cipher(false)]
        };
        assert_eq!(wants("valkey://h"), [true, false]);
        assert_eq!(wants("valkeys://h"), [true, false]);
        assert_eq!(wants("valkeys://h?ca=/own.crt"), [false, false]);
        assert_eq!(wants("valkey+unix:///s"), [false, false]);
        assert_eq!(wants("valkey://h?encrypt=no"), [false, false]);
        assert_eq!(wants("valkey+unix:///s?encrypt=yes"), [true, true]);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        let wrong = [
            "valkey:host",
            "valkey://",
            "valkey://u:hushhush@",
            "valkey://u:hushhush@h:0",
            "valkey://u:hushhush@h:99999",
            "valkey://u:hushhush@h/x",
            "valkey://u:hushhush%4@h",
            "valkey://u:hushhush@h?nonsense=1",
            "valkey://u:hushhush@h?stall=0",
            "valkey://u:hushhush@h?limit=-5",
            "valkey://u:hushhush@h?cluster=maybe",
            "valkey://u:hushhush@a,b",
            "valkey://u:hushhush@a,?cluster=yes",
            "valkey://u:hushhush@a?cluster=yes&sentinel=m",
            "valkey://u:hushhush@a?sentinel=",
            "valkey+unix:///s?sentinel=m",
            "valkey://u:hushhush@h?encrypt=maybe",
            "valkeys://u:hushhush@h?cert=/x",
            "valkeys://u:hushhush@h?ca=",
            "valkeys://u:hushhush@h?tls=x",
            "valkey://u:hushhush@h?ca=/x",
            "valkey+unix://run/sock",
            "valkey+unix:///",
            "valkey+list://servers",
            "valkey+list:///servers?spare=1m",
            "valkey+list:///servers?cluster=yes",
            "nfs://u:hushhush@h",
        ];
        for name in wrong {
            let why = Server::parse(name).unwrap_err();
            assert!(!why.contains("hushhush") && !why.contains('\n'), "{name}: {why}");
        }
        let server = Server::parse("valkey://u:hushhush@h").unwrap();
        assert!(!format!("{server:?} {} {}", server.shown(), server.without_password()).contains("hushhush"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_in_one_line(
            text in prop_oneof![".{0,60}", "valkey://[a-z0-9:@/%?&=.\\[\\]]{0,60}"]
        ) {
            if let Err(why) = Server::parse(&text) {
                prop_assert!(!why.contains('\n'));
            }
        }

        #[test]
        fn a_name_without_its_password_means_the_same(
            user in proptest::option::of("[a-z@:% ]{1,9}"), prefix in "[a-z:.]{0,9}", database in 0u32..99,
            limit in proptest::option::of(1u64..1 << 50), stall in 100u64..100_000, path in "/[a-z %/?#]{1,60}",
            is_unix in any::<bool>(), is_list in any::<bool>(), count in 0usize..3, secret in proptest::option::of(0..999),
            seeds in 0usize..3,
            encrypt in any::<Option<bool>>(), tls in any::<bool>(), certs in any::<bool>(),
            file in proptest::option::of("/[a-z %&=+]{1,20}"), handed in proptest::option::of(0..999),
        ) {
            let is_list = is_list && !is_unix;
            let seeds = if is_unix || is_list { 0 } else { seeds };
            let address = match (is_unix, is_list) {
                (true, _) => Address::Unix(path.into()),
                (_, true) => Address::List(path.into()),
                _ => Address::Tcp("fe80::1".into(), 7),
            };
            let tls = tls && !is_unix;
            let file = file.filter(|_| tls);
            let both = file.clone().filter(|_| certs).map(PathBuf::from);
            let files = Files { ca: file.clone().map(PathBuf::from), cert: both.clone(), key: both };
            let server = Server {
                address, tls, user, password: None, database, prefix, limit_bytes: limit,
                stall: Duration::from_millis(stall), numbers: vec!["::1".parse().unwrap(); count], secret, password_file: None,
                spare: (seeds == 1).then_some(Duration::from_secs(60)),
                seeds: vec![("h".into(), 1); seeds], cluster: (seeds > 0).then_some(true), sentinel: None,
                grace: Duration::from_millis(stall),
                encrypt, files, name: file, handed: handed.filter(|_| tls), tls_with: None,
            };
            prop_assert_eq!(Server::parse(&server.without_password()), Ok(server));
        }
    }
}
