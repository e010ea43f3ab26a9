//! How settings' URLs become stores.

use crate::client;
use crate::life::{self, Checked, NotFit};
use crate::list;
use crate::store::Far;
use crate::tls::Tls;
use crate::url::{Address, PASSWORD_FILE, Secret, Server};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use terapage_store::{Elsewhere, Error, Shelf, Store, Terms};

/// Warnings from checks.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The results of checks, for each name.
static CHECKED: Mutex<Vec<(String, Checked)>> = Mutex::new(Vec::new());

/// Names of servers that gave no answer when they were checked.
static ABSENT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The password of servers whose names have none, once it was read, and its file.
static PASSWORD: Mutex<Option<(Secret, PathBuf)>> = Mutex::new(None);

/// Whether its file was looked up: the environment now belongs to the program, and may be paged.
static LOOKED: AtomicBool = AtomicBool::new(false);

/// Servers by their names, with the contents of the files in those names.
static SERVERS: Mutex<Vec<(String, Server)>> = Mutex::new(Vec::new());

/// Names of hosts cannot be looked up here.
static NO_NAMES: AtomicBool = AtomicBool::new(false);

/// All kinds of stores, including far stores.
pub fn shelf() -> Shelf {
    let elsewhere = Elsewhere { check, is_absent, warn, servers, spare, open, wants_cipher };
    Shelf { elsewhere, ..Shelf::default() }
}

/// From now on hosts must be addresses, or have `ip=`: the C library must not look up names, which
/// takes memory of the program.
pub fn no_names() {
    NO_NAMES.store(true, Relaxed);
}

/// Reads the password's file, if one is named, while it can be read: the program may lose its
/// rights or its directories.
///
/// # Errors
/// The file cannot be read, or has no password: one line.
pub fn remember_password(file: Option<PathBuf>) -> Result<(), String> {
    LOOKED.store(true, Relaxed);
    let Some(file) = file else { return Ok(()) };
    let secret = password_in(file)?;
    *PASSWORD.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(secret);
    Ok(())
}

/// The password in a file, and the file, whatever becomes the current directory.
fn password_in(file: PathBuf) -> Result<(Secret, PathBuf), String> {
    let secret = Secret::read(&file).map_err(|why| format!("{PASSWORD_FILE}: {} {why}", file.display()))?;
    let file = std::path::absolute(&file).unwrap_or(file);
    Ok((secret, file))
}

/// Reads the files of a server anew, its password and what TLS takes, as they may have been
/// changed. What cannot be read stays as it was.
pub(crate) fn read_again(server: &mut Server) {
    if let Some(secret) = server.password_file.as_ref().and_then(|file| Secret::read(file).ok()) {
        server.password = Some(secret);
    }
    let has_files = server.files.ca.is_some() || server.files.cert.is_some();
    if server.tls
        && has_files
        && let Ok(tls) = Tls::read(server)
        && tls.check().is_ok()
    {
        server.tls_with = Some(tls);
    }
}

/// Reads the files in a server's name, while they can be read: the program may lose its rights, its
/// directories or its descriptors. Errors are reported when the server is needed.
pub fn remember(url: &str) {
    if let Ok(server) = server(url)
        && (server.tls || server.secret.is_some())
    {
        SERVERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((url.to_owned(), server));
    }
}

/// The contents of an open file of this process, which may have no name.
fn handed(descriptor: i32) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; 4096];
    let mut len = 0;
    loop {
        let room = &mut bytes[len..];
        // SAFETY: this number of bytes may be written there.
        let got = unsafe { libc::pread(descriptor, room.as_mut_ptr().cast(), room.len(), len as i64) };
        match usize::try_from(got) {
            Ok(0) => break,
            Ok(got) => len += got,
            Err(_) => return Err(format!("cannot be read: {}", std::io::Error::last_os_error())),
        }
        if len == bytes.len() {
            bytes.resize(2 * len, 0);
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Parses a server's name, and adds known data: its password, and the files of TLS.
///
/// # Errors
/// The error, in one line, without the password.
pub fn server(url: &str) -> Result<Server, String> {
    let known = SERVERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((_, server)) = known.iter().find(|(name, _)| name == url) {
        return Ok(server.clone());
    }
    drop(known);
    let mut server = Server::parse(url)?;
    if server.tls {
        let no = |why| format!("the files for TLS were handed over, and {why}");
        let tls = match server.handed {
            Some(descriptor) => handed(descriptor).and_then(|bytes| Tls::from_bytes(&bytes)).map_err(no)?,
            None => Tls::read(&server).map_err(|why| format!("{}: {why}", server.shown()))?,
        };
        server.tls_with = Some(tls);
    }
    if let Some(descriptor) = server.secret {
        let no = |why| format!("the password that was handed over (descriptor {descriptor}) {why}");
        server.password = Some(handed(descriptor).and_then(|bytes| Secret::of(&bytes)).map_err(no)?);
    }
    if server.password.is_none() {
        let mut known = PASSWORD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.is_none()
            && !LOOKED.load(Relaxed)
            && let Some(file) = std::env::var_os(PASSWORD_FILE).filter(|file| !file.is_empty())
        {
            *known = Some(password_in(file.into())?);
        }
        (server.password, server.password_file) = known.clone().unzip();
    }
    Ok(server)
}

/// Warnings from checks, one line each.
pub fn take_warnings() -> Vec<String> {
    std::mem::take(&mut *WARNINGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn spare(url: &str) -> Option<Duration> {
    Server::parse(url).ok()?.spare
}

fn wants_cipher(url: &str, by_default: bool) -> bool {
    Server::parse(url).is_ok_and(|server| server.wants_cipher(by_default))
}

/// Whether a server that was checked gave no answer, and may come back.
fn is_absent(url: &str) -> bool {
    ABSENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner).iter().any(|absent| absent == url)
}

fn warn(line: String) {
    WARNINGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(line);
}

fn check(url: &str) -> Result<(), String> {
    let server = server(url)?;
    let name = server.shown();
    if let Some(tls) = &server.tls_with {
        tls.check().map_err(|why| format!("{name}: {why}"))?;
    }
    if let Address::List(file) = &server.address {
        return check_list(&server, file);
    }
    let checked = life::check(&server).map_err(|NotFit { why, is_absent, .. }| {
        if is_absent {
            ABSENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(url.to_owned());
        }
        format!("{name} {why}")
    })?;
    let warnings = checked.warnings.iter().map(|what| format!("{name} {what}"));
    WARNINGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(warnings);
    let mut known = CHECKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    known.retain(|(known, _)| known != url);
    known.push((url.to_owned(), checked));
    Ok(())
}

/// Checks the servers of a list. A store that gives no answer may be used later, if there is
/// another store.
fn check_list(template: &Server, file: &Path) -> Result<(), String> {
    let servers = list::servers(file).map_err(|why| format!("{} {why}", list::shown(file)))?;
    let mut absent = Vec::new();
    for &address in &servers {
        let server = template.at(address);
        let name = server.shown();
        match life::check(&server) {
            Ok(checked) => checked.warnings.iter().for_each(|what| warn(format!("{name} {what}"))),
            Err(NotFit { why, is_absent: true, .. }) => absent.push(format!("{name} {why}")),
            Err(NotFit { why, is_absent: false, .. }) => return Err(format!("{name} {why}")),
        }
    }
    if absent.len() == servers.len() {
        return absent.into_iter().next().map_or(Ok(()), Err);
    }
    absent.into_iter().for_each(|why| warn(format!("{why}: it gets blocks when it answers")));
    Ok(())
}

fn checked(url: &str) -> Option<Checked> {
    let known = CHECKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    known.iter().find(|(known, _)| known == url).map(|(_, checked)| checked.clone())
}

/// The servers behind a checked name, each with a unique text.
fn servers(url: &str) -> Vec<String> {
    checked(url).map(|checked| checked.run_ids).unwrap_or_default()
}

/// Whether a replica may replace a server, and give older bytes: the result of the check of this
/// name.
pub fn is_replicated(url: &str) -> bool {
    checked(url).is_some_and(|checked| checked.is_replicated)
}

fn open(url: &str, terms: Terms) -> Result<Box<dyn Store>, Error> {
    let unfit = |name: &str, why: String| Error::Unfit { name: name.to_owned(), why };
    let mut server = server(url).map_err(|why| unfit("far", why))?;
    if let Address::Tcp(host, port) = &server.address
        && server.numbers.is_empty()
    {
        let is_number = |host: &str| host.parse::<std::net::IpAddr>().is_ok();
        let are_numbers = is_number(host) && server.seeds.iter().all(|(host, _)| is_number(host));
        if NO_NAMES.load(Relaxed) && !are_numbers {
            let why = "is named by a host name: start the program with `terapage run`, or give an \
                       address";
            return Err(unfit(&server.shown(), why.to_owned()));
        }
        let found = client::resolve(host, *port)
            .map_err(|error| unfit(&server.shown(), format!("cannot be found: {error}")))?;
        server.numbers = found.into_iter().map(|address| address.ip()).collect();
    }
    if let Address::List(file) = &server.address {
        let file = file.clone();
        return list::open(server, &file, terms);
    }
    if let Some(limit) = terms.limit {
        server.limit_bytes = Some(server.limit_bytes.unwrap_or(limit).min(limit));
    }
    Ok(Box::new(Far::new(server, terms.block)?))
}
