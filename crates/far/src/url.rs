//! Names of memory servers: `valkey://user:password@host:6379/0?prefix=team1&stall=10s`.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// The port where none is named.
const PORT: u16 = 6379;

/// How long a server may give no answer before the program is stopped, where nothing else is said.
const STALL: Duration = Duration::from_secs(30);

/// The longest that can be asked for.
const STALL_MAX: Duration = Duration::from_secs(24 * 3600);

/// The variable that names a file which holds the password.
pub const PASSWORD_FILE: &str = "TERAPAGE_STORE_PASSWORD_FILE";

/// The schemes that this reads.
pub const SCHEMES: [&str; 7] = ["valkey", "valkeys", "redis", "rediss", "valkey+unix", "redis+unix", "unix"];

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host, by name or number, and a port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
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
    /// Takes it from a file, whose last line break is not part of it. The error stands behind the
    /// file's name.
    pub fn read(file: &std::path::Path) -> Result<Secret, String> {
        let bytes = std::fs::read(file).map_err(|error| format!("cannot be read: {error}"))?;
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
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

/// A memory server, and how it is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it listens.
    pub address: Address,
    /// Whether it is spoken to through TLS.
    pub tls: bool,
    /// The user; `None` is the server's default one.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: u32,
    /// What keys begin with, before a colon; empty: nothing.
    pub prefix: String,
    /// Bytes that this process may keep there.
    pub limit_bytes: Option<u64>,
    /// How long no answer is waited for.
    pub stall: Duration,
    /// The host's numbers, where they are known.
    pub numbers: Vec<IpAddr>,
    /// An open file of this process's that holds the password.
    pub secret: Option<i32>,
}

impl Server {
    /// Whether `text` begins as a server's name does.
    pub fn is_one(text: &[u8]) -> bool {
        let scheme = text.split(|&b| b == b':').next().unwrap_or_default();
        scheme.len() < text.len() && SCHEMES.iter().any(|known| known.as_bytes() == scheme)
    }

    /// Reads a name. The error says what is wrong in one line, and never a password.
    pub fn parse(text: &str) -> Result<Server, String> {
        if text.contains(char::is_control) {
            return Err("a server's name holds a control character".to_owned());
        }
        let (scheme, rest) = text.split_once(':').ok_or("a server's name begins with valkey://")?;
        let is_unix = matches!(scheme, "valkey+unix" | "redis+unix" | "unix");
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
        let mut server = Server {
            address: if is_unix { unix(place, path)? } else { tcp(place)? },
            tls: matches!(scheme, "valkeys" | "rediss"),
            user: None,
            password: None,
            database: 0,
            prefix: String::new(),
            limit_bytes: None,
            stall: STALL,
            numbers: Vec::new(),
            secret: None,
        };
        if let Some(who) = who {
            server.take_user(who)?;
        }
        if !is_unix && !matches!(path, "" | "/") {
            server.database = database(&path[1..])?;
        }
        for option in options.split('&').filter(|option| !option.is_empty()) {
            server.take_option(option)?;
        }
        Ok(server)
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
            "limit" => self.limit_bytes = Some(bytes(&value)?),
            "stall" => self.stall = duration(&value)?,
            "user" => self.user = Some(value),
            "ip" => {
                let numbers = value.split(',').map(str::parse).collect::<Result<_, _>>();
                self.numbers = numbers.map_err(|_| "ip= takes numbers of hosts, as in ip=10.0.0.7")?;
            }
            "secret" => self.secret = Some(value.parse().map_err(|_| "secret= takes a descriptor")?),
            "password" => return Err("a password is written before the host, or in a file".to_owned()),
            "encrypt" if value == "no" => {}
            "encrypt" => return Err("encrypt= takes no: bytes are not encrypted yet".to_owned()),
            "ca" | "cert" | "key" | "name" if !self.tls => {
                return Err(format!("{name}= is for TLS (valkeys://)"));
            }
            "cluster" => return Err("clusters are not there yet (name standalone servers)".to_owned()),
            _ => {
                let name: String = name.chars().take(40).collect();
                return Err(format!(
                    "a server has no option '{name}' (known are db, limit, prefix, stall, user, encrypt)"
                ));
            }
        }
        Ok(())
    }

    /// The name that people are shown: where the server listens, and nothing else.
    pub fn shown(&self) -> String {
        let tls = if self.tls { "s" } else { "" };
        match &self.address {
            Address::Tcp(host, port) if host.contains(':') => format!("valkey{tls}://[{host}]:{port}"),
            Address::Tcp(host, port) => format!("valkey{tls}://{host}:{port}"),
            Address::Unix(path) => format!("valkey+unix://{}", path.display()),
        }
    }

    /// The whole name without the password, as [`parse`](Self::parse) reads it.
    pub fn without_password(&self) -> String {
        let mut name = match &self.address {
            Address::Tcp(..) => self.shown(),
            Address::Unix(path) => format!("valkey+unix://{}", encode(path.as_os_str().as_bytes(), b"/")),
        };
        let mut mark = '?';
        let mut add = |key: &str, value: &str| {
            let value = encode(value.as_bytes(), b":,");
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
        if !self.numbers.is_empty() {
            let numbers: Vec<String> = self.numbers.iter().map(IpAddr::to_string).collect();
            add("ip", &numbers.join(","));
        }
        if let Some(secret) = self.secret {
            add("secret", &secret.to_string());
        }
        name
    }
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`.
fn tcp(place: &str) -> Result<Address, String> {
    if place.contains(',') {
        return Err("several servers are named by a --store each".to_owned());
    }
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("a ']' is missing after the address")?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
        }
        None => place.split_once(':').map_or((place, Some("")), |(host, port)| (host, Some(port))),
    };
    let wrong_port = || "the port is not a number from 1 to 65535".to_owned();
    let port = match port.ok_or_else(wrong_port)? {
        "" => PORT,
        port => port.parse().ok().filter(|&port| port > 0).ok_or_else(wrong_port)?,
    };
    let host = String::from_utf8(decode(host)?).map_err(|_| "the host's name is not UTF-8")?;
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.:%".contains(&b);
    if host.is_empty() || host.len() > 253 || !host.bytes().all(fits) {
        return Err("a server's name has no host (write valkey://HOST:PORT)".to_owned());
    }
    Ok(Address::Tcp(host, port))
}

fn unix(place: &str, path: &str) -> Result<Address, String> {
    let path = OsString::from_vec(decode(path)?);
    // What `sun_path` takes, with the zero byte at its end.
    if !place.is_empty() || path.len() < 2 || path.len() > 107 || path.as_bytes().contains(&0) {
        return Err("a socket is named by its path (write valkey+unix:///run/valkey.sock)".to_owned());
    }
    Ok(Address::Unix(path.into()))
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
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "stall= takes a time from 100ms to 24h, as in stall=30s".to_owned();
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
        let local = Server::parse("valkey+unix:///run/a%20b.sock?db=2").unwrap();
        assert_eq!((local.address, local.database), (Address::Unix("/run/a b.sock".into()), 2));
        let only_word = Server::parse("valkey://:pw@h").unwrap();
        assert_eq!((only_word.user, only_word.password), (None, Some(Secret(b"pw".to_vec()))));
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
            "valkey://u:hushhush@h?cluster=yes",
            "valkey://u:hushhush@a,b",
            "valkey://u:hushhush@h?encrypt=yes",
            "valkey://u:hushhush@h?ca=/x",
            "valkey+unix://run/sock",
            "valkey+unix:///",
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
            is_unix in any::<bool>(), count in 0usize..3, secret in proptest::option::of(0..999),
        ) {
            let address = if is_unix { Address::Unix(path.into()) } else { Address::Tcp("fe80::1".into(), 7) };
            let server = Server {
                address, tls: false, user, password: None, database, prefix, limit_bytes: limit,
                stall: Duration::from_millis(stall), numbers: vec!["::1".parse().unwrap(); count], secret,
            };
            prop_assert_eq!(Server::parse(&server.without_password()), Ok(server));
        }
    }
}
