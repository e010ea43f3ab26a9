//! How settings' URLs become stores.

use crate::client;
use crate::life;
use crate::store::Far;
use crate::url::{Address, PASSWORD_FILE, Secret, Server};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_store::{Elsewhere, Error, Shelf, Store, Terms};

/// What may do harm, as it was found by checks.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The password of servers whose names have none, once it was read.
static PASSWORD: Mutex<Option<Secret>> = Mutex::new(None);

/// Names of hosts cannot be looked up here.
static NO_NAMES: AtomicBool = AtomicBool::new(false);

/// All kinds of stores that there are, far ones too.
pub fn shelf() -> Shelf {
    Shelf { elsewhere: Elsewhere { check, open }, ..Shelf::default() }
}

/// From now on a host is a number, or its numbers are named (`ip=`): the C library must not be
/// asked, which takes memory of the program's.
pub fn no_names() {
    NO_NAMES.store(true, Relaxed);
}

/// Reads the password's file, if one is named, while it can be read: the program may lose its
/// rights or its directories.
///
/// # Errors
/// The file cannot be read, or holds none: one line.
pub fn remember_password(file: Option<PathBuf>) -> Result<(), String> {
    let Some(file) = file else { return Ok(()) };
    let secret = Secret::read(&file).map_err(|why| format!("{PASSWORD_FILE}: {} {why}", file.display()))?;
    *PASSWORD.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(secret);
    Ok(())
}

/// Reads a server's name, and adds the password that is known for it.
///
/// # Errors
/// What is wrong, in one line, without the password.
pub fn server(url: &str) -> Result<Server, String> {
    let mut server = Server::parse(url)?;
    if let Some(descriptor) = server.secret {
        let file = PathBuf::from(format!("/proc/self/fd/{descriptor}"));
        let no = |why| format!("the password that was handed over (descriptor {descriptor}) {why}");
        server.password = Some(Secret::read(&file).map_err(no)?);
    }
    if server.password.is_none() {
        let mut known = PASSWORD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.is_none()
            && let Some(file) = std::env::var_os(PASSWORD_FILE).filter(|file| !file.is_empty())
        {
            let file = PathBuf::from(file);
            let no = |why| format!("{PASSWORD_FILE}: {} {why}", file.display());
            *known = Some(Secret::read(&file).map_err(no)?);
        }
        server.password.clone_from(&known);
    }
    Ok(server)
}

/// What checks have found that may do harm, one line each.
pub fn take_warnings() -> Vec<String> {
    std::mem::take(&mut *WARNINGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn check(url: &str) -> Result<(), String> {
    let server = server(url)?;
    let name = server.shown();
    let warnings = life::check(&server).map_err(|why| format!("{name} {why}"))?;
    let warnings = warnings.into_iter().map(|what| format!("{name} {what}"));
    WARNINGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(warnings);
    Ok(())
}

fn open(url: &str, terms: Terms) -> Result<Box<dyn Store>, Error> {
    let unfit = |name: &str, why: String| Error::Unfit { name: name.to_owned(), why };
    let mut server = server(url).map_err(|why| unfit("far", why))?;
    if let Address::Tcp(host, port) = &server.address
        && server.numbers.is_empty()
    {
        let is_number = host.parse::<std::net::IpAddr>().is_ok();
        if NO_NAMES.load(Relaxed) && !is_number {
            let why = "is named by a host: start the program by `terapage run`, or name a number";
            return Err(unfit(&server.shown(), why.to_owned()));
        }
        let found = client::resolve(host, *port)
            .map_err(|error| unfit(&server.shown(), format!("is not to be found: {error}")))?;
        server.numbers = found.into_iter().map(|address| address.ip()).collect();
    }
    if let Some(limit) = terms.limit {
        server.limit_bytes = Some(server.limit_bytes.unwrap_or(limit).min(limit));
    }
    Ok(Box::new(Far::new(server, terms.block)?))
}
