//! A list of servers in a file, which may change while programs run.
//!
//! Each server of the list is a store of its own, with one copy of each block, and new extents are
//! spread over all. A server that is added joins them. A server that is taken out of the list, or
//! is to be emptied (`terapage far drain`), gives its blocks to another one of the list.
//!
//! The file is read again about once a second by the pager's thread. If it cannot be read, or has a
//! line that names no server, the last list stays in force.

use crate::store::Far;
use crate::url::{self, Server};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use terapage_store::{Error, Mirror, Placement, Store, Striped, Terms};
use terapage_sys::thread::say;

/// A server that is, or was, in the list.
pub(crate) struct Member {
    address: SocketAddr,
    /// It is in the list.
    is_listed: AtomicBool,
    /// Somebody wants it to be emptied.
    drains: AtomicBool,
}

impl Member {
    /// Whether the blocks of this server should move to another one.
    pub fn is_left(&self) -> bool {
        self.drains.load(Relaxed) || !self.is_listed.load(Relaxed)
    }

    /// Notes whether somebody wants the server to be emptied.
    pub fn note_drain(&self, drains: bool) {
        self.drains.store(drains, Relaxed);
    }
}

/// The list as last read.
struct List {
    file: PathBuf,
    /// What the servers have in common.
    template: Server,
    block: usize,
    /// Bytes of the blocks into which blocks may be split later.
    least: usize,
    text: Vec<u8>,
    members: Vec<Arc<Member>>,
    /// The number of stores that were opened for blocks of other servers.
    moved: usize,
    /// The last complaint about the file, which is not repeated.
    complaint: String,
}

/// Opens the store that a list of servers is.
///
/// # Errors
/// The list cannot be used: its file cannot be read, or names no servers.
pub(crate) fn open(template: Server, file: &Path, terms: Terms) -> Result<Box<dyn Store>, Error> {
    let list = Arc::new(Mutex::new(List {
        file: file.to_owned(),
        template,
        block: terms.block,
        least: terms.least,
        text: Vec::new(),
        members: Vec::new(),
        moved: 0,
        complaint: String::new(),
    }));
    let found = read(file).map_err(|why| Error::Unfit { name: shown(file), why });
    let stores = join(&list, found?)?;
    let joins = Box::new(move || {
        let text = std::fs::read(&lock(&list).file);
        let found = match text {
            Ok(text) if text == lock(&list).text => return Vec::new(),
            Ok(text) => parse(&text).map(|servers| (text, servers)),
            Err(error) => Err(format!("cannot be read: {error}")),
        };
        let joined = found.and_then(|found| join(&list, found).map_err(|error| error.to_string()));
        joined.unwrap_or_else(|why| {
            lock(&list).complain(why);
            Vec::new()
        })
    });
    let striped = Striped::new(stores, Placement::RoundRobin, terms.block, terms.limit)?;
    Ok(Box::new(striped.joined_by(joins)))
}

/// The servers in a list.
///
/// # Errors
/// It cannot be read, or names no servers. The text follows its name.
pub(crate) fn servers(file: &Path) -> Result<Vec<SocketAddr>, String> {
    read(file).map(|(_, servers)| servers)
}

/// The list's name in messages.
pub(crate) fn shown(file: &Path) -> String {
    format!("list {}", file.display())
}

fn read(file: &Path) -> Result<(Vec<u8>, Vec<SocketAddr>), String> {
    let text = std::fs::read(file).map_err(|error| format!("cannot be read: {error}"))?;
    let servers = parse(&text)?;
    if servers.is_empty() {
        return Err("names no server (write one to a line: 10.0.0.7:6379)".to_owned());
    }
    Ok((text, servers))
}

/// Reads a server from each line, `ADDRESS` or `ADDRESS:PORT`; `#` begins a remark.
fn parse(text: &[u8]) -> Result<Vec<SocketAddr>, String> {
    let mut servers = Vec::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(line);
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let found = url::tcp(line, url::PORT);
        let found = found.ok().and_then(|(host, port)| Some((host.parse::<IpAddr>().ok()?, port)));
        let (address, port) = found.ok_or_else(|| {
            let line: String = line.chars().take(60).collect();
            // The pager's thread cannot look names up.
            format!("has no address in line {}: '{line}' (write 10.0.0.7:6379)", index + 1)
        })?;
        let server = SocketAddr::new(address, port);
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    Ok(servers)
}

fn lock(list: &Mutex<List>) -> std::sync::MutexGuard<'_, List> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the list be `servers`. Returns stores on those that were not in the list before.
fn join(list: &Arc<Mutex<List>>, found: (Vec<u8>, Vec<SocketAddr>)) -> Result<Vec<Box<dyn Store>>, Error> {
    let (text, servers) = found;
    let mut locked = lock(list);
    let members: Vec<_> = servers.iter().map(|&server| locked.member(server)).collect();
    let new = members.iter().filter(|member| !member.is_listed.load(Relaxed));
    let new = new.map(|member| Ok(Box::new(locked.open(member)?) as Box<dyn Store>));
    let new = new.collect::<Result<Vec<_>, Error>>()?;
    for member in &locked.members {
        member.is_listed.store(servers.contains(&member.address), Relaxed);
    }
    locked.text = text;
    locked.complaint.clear();
    let (block, least) = (locked.block, locked.least);
    drop(locked);
    let alone = |store| {
        let list = list.clone();
        let relief = Box::new(move || lock(&list).relieve().map(|store| Box::new(store) as Box<dyn Store>));
        Box::new(Mirror::alone(store, relief, block).splitting_to(least)) as Box<dyn Store>
    };
    Ok(new.into_iter().map(alone).collect())
}

impl List {
    /// What is known of a server.
    fn member(&mut self, address: SocketAddr) -> Arc<Member> {
        if let Some(member) = self.members.iter().find(|member| member.address == address) {
            return member.clone();
        }
        let [is_listed, drains] = [AtomicBool::new(false), AtomicBool::new(false)];
        let member = Arc::new(Member { address, is_listed, drains });
        self.members.push(member.clone());
        member
    }

    fn open(&self, member: &Arc<Member>) -> Result<Far, Error> {
        let far = Far::new(self.template.at(member.address), self.block)?;
        Ok(far.in_list(member.clone()))
    }

    /// A store for the blocks of a server that is to be emptied: on the others in turns.
    fn relieve(&mut self) -> Option<Far> {
        let others: Vec<_> = self.members.iter().filter(|member| !member.is_left()).cloned().collect();
        let other = others.get(self.moved % others.len().max(1))?;
        self.moved += 1;
        self.open(other).ok()
    }

    fn complain(&mut self, why: String) {
        if why != self.complaint {
            say(&format!("terapage: warning: {} {why}: the servers stay as they were\n", shown(&self.file)));
            self.complaint = why;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_list_has_a_server_in_each_line() {
        let text = b"# far\n10.0.0.7\n  10.0.0.8:7000 # new\r\n\n[fe80::1]:7001\n10.0.0.7:6379\n";
        let servers = [at("10.0.0.7:6379"), at("10.0.0.8:7000"), at("[fe80::1]:7001")];
        assert_eq!(parse(text).unwrap(), servers);
        let why = parse(b"10.0.0.7\nfar2:6379\n").unwrap_err();
        assert!(why.contains("line 2: 'far2:6379'"), "{why}");
        assert!(parse(b"10.0.0.7:0\n").is_err() && parse(b"\xff\n").is_err());
    }

    #[test]
    fn blocks_move_to_the_servers_that_stay() {
        let list = Arc::new(Mutex::new(List {
            file: PathBuf::new(),
            template: Server::parse("valkey+list:///servers?prefix=t").unwrap(),
            block: 4096,
            least: 4096,
            text: Vec::new(),
            members: Vec::new(),
            moved: 0,
            complaint: String::new(),
        }));
        let servers = ["10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3"].map(at);
        let opened = |servers: &[SocketAddr]| join(&list, (Vec::new(), servers.to_vec())).unwrap().len();
        assert_eq!(opened(&servers[..2]), 2);
        assert_eq!(opened(&servers), 1, "only the new server joins");
        assert_eq!(opened(&servers[1..]), 0);
        lock(&list).members[1].note_drain(true);
        let left: Vec<_> = lock(&list).members.iter().map(|member| member.is_left()).collect();
        assert_eq!(left, [true, true, false]);
        let relief = lock(&list).relieve().unwrap();
        assert_eq!((relief.name(), &*relief.server().prefix), ("valkey://10.0.0.3:3".to_owned(), "t"));
        lock(&list).members[2].note_drain(true);
        assert!(lock(&list).relieve().is_none(), "there is no other server");
        assert_eq!(opened(&servers), 1, "a server that comes back joins again");
    }
}
