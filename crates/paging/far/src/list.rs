//! A list of servers in a file, which may change while programs run.
//!
//! Each server of the list is a store of its own, with one copy of each block, and new extents are
//! spread over all. A server that is added joins them. A server that is taken out of the list, or
//! is to be emptied (`terapage far drain`), gives its blocks to another one of the list.
//!
//! A thread of its own reads the file again about once a second: where the file lies on another
//! machine that does not answer, the pager must not wait. If the file cannot be read, names no
//! server, or has a line that is no server's, the last list stays in force.

use crate::store::Far;
use crate::url::{self, Server};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use terapage_store::{Error, Mirror, Placement, Store, Striped, Terms};
use terapage_sys::thread::{self, say};

/// A server that is, or was, in the list.
pub(crate) struct Member {
    address: SocketAddr,
    /// It is in the list.
    is_listed: AtomicBool,
    /// Somebody wants it to be emptied.
    drains: AtomicBool,
    /// There is a store for new blocks there, whose blocks were not moved to another server.
    has_store: AtomicBool,
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
    let mut reader = Reader::new(file.to_owned());
    let joins = Box::new(move || {
        let found = match reader.newest() {
            None => return Vec::new(),
            Some(Ok(text)) if text == lock(&list).text => return Vec::new(),
            Some(Ok(text)) => parse_some(text),
            Some(Err(why)) => Err(why),
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

/// The time between two readings of the file, ms.
const PAUSE_MS: u64 = 1000;

/// A text of the file, or why it could not be read.
type Text = Result<Vec<u8>, String>;

/// Reads a file again and again, in a thread.
struct Reader {
    file: PathBuf,
    /// The process that has the thread: the child of a fork has none.
    process: u32,
    /// The last text, if it was not yet taken.
    last: Arc<Mutex<Option<Text>>>,
}

impl Reader {
    fn new(file: PathBuf) -> Reader {
        Reader { file, process: 0, last: Arc::default() }
    }

    /// The text that was last read, once. Does not wait.
    fn newest(&mut self) -> Option<Text> {
        let this = std::process::id();
        if self.process != this {
            self.process = this;
            self.begin();
        }
        self.last.try_lock().ok()?.take()
    }

    fn begin(&mut self) {
        self.last = Arc::default();
        let (file, last) = (self.file.clone(), Arc::downgrade(&self.last));
        let began = thread::spawn(c"terapage-list", move || {
            while last.strong_count() > 0 {
                let text = read_text(&file);
                if let Some(last) = last.upgrade() {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                }
                thread::sleep_ms(PAUSE_MS);
            }
        });
        if let Err(error) = began {
            self.last = Arc::new(Mutex::new(Some(Err(format!("is not read again: {error}")))));
        }
    }
}

fn read_text(file: &Path) -> Text {
    std::fs::read(file).map_err(|error| format!("cannot be read: {error}"))
}

fn read(file: &Path) -> Result<(Vec<u8>, Vec<SocketAddr>), String> {
    parse_some(read_text(file)?)
}

/// The servers of a list that names some, and its text.
fn parse_some(text: Vec<u8>) -> Result<(Vec<u8>, Vec<SocketAddr>), String> {
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

/// Replaces the list by `servers`. Returns stores on the servers that are new.
fn join(list: &Arc<Mutex<List>>, found: (Vec<u8>, Vec<SocketAddr>)) -> Result<Vec<Box<dyn Store>>, Error> {
    let (text, servers) = found;
    let mut locked = lock(list);
    let members: Vec<_> = servers.iter().map(|&server| locked.member(server)).collect();
    // A server that is named again before its blocks have moved still has its store.
    let is_new = |member: &&Arc<Member>| !member.is_listed.load(Relaxed) && !member.has_store.load(Relaxed);
    let new = members.iter().filter(is_new);
    let new = new.map(|member| Ok((member.clone(), Box::new(locked.open(member)?) as Box<dyn Store>)));
    let new = new.collect::<Result<Vec<_>, Error>>()?;
    for member in &locked.members {
        member.is_listed.store(servers.contains(&member.address), Relaxed);
    }
    locked.text = text;
    locked.complaint.clear();
    let (block, least) = (locked.block, locked.least);
    drop(locked);
    let alone = |(member, store): (Arc<Member>, _)| {
        member.has_store.store(true, Relaxed);
        Box::new(Mirror::alone(store, relief_of(list.clone(), member), block).splitting_to(least))
            as Box<dyn Store>
    };
    Ok(new.into_iter().map(alone).collect())
}

/// What gives a server's blocks another store.
fn relief_of(list: Arc<Mutex<List>>, member: Arc<Member>) -> terapage_store::Relief {
    Box::new(move || {
        let other = lock(&list).relieve()?;
        member.has_store.store(false, Relaxed);
        Some(Box::new(other) as Box<dyn Store>)
    })
}

impl List {
    /// What is known of a server.
    fn member(&mut self, address: SocketAddr) -> Arc<Member> {
        if let Some(member) = self.members.iter().find(|member| member.address == address) {
            return member.clone();
        }
        let [is_listed, drains, has_store] = [false, false, false].map(AtomicBool::new);
        let member = Arc::new(Member { address, is_listed, drains, has_store });
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
        assert_eq!(opened(&servers), 0, "a server that comes back before it was left has its store");
        assert_eq!(opened(&servers[1..]), 0);
        lock(&list).members[2].note_drain(false);
        let member = lock(&list).members[0].clone();
        assert!(relief_of(list.clone(), member)().is_some(), "its blocks move");
        assert_eq!(opened(&servers), 1, "a server that was left, and comes back, joins again");
    }

    #[test]
    fn a_list_that_names_nobody_is_refused() {
        assert!(parse_some(b"# all gone\n\n".to_vec()).unwrap_err().contains("names no server"));
        assert_eq!(parse_some(b"10.0.0.7\n".to_vec()).unwrap().1, [at("10.0.0.7:6379")]);
    }

    /// A pipe without a writer is a file whose reading does not end.
    #[test]
    fn nobody_waits_for_a_file_that_cannot_be_read_now() {
        let pipe = std::env::temp_dir().join(format!("terapage-list-{}", std::process::id()));
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the path ends in a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut reader = Reader::new(pipe.clone());
        assert!(reader.newest().is_none(), "this thread goes on");
        std::fs::write(&pipe, "10.0.0.7\n").unwrap();
        let text = loop {
            match reader.newest() {
                Some(text) => break text,
                None => thread::sleep_ms(1),
            }
        };
        assert_eq!(text, Ok(b"10.0.0.7\n".to_vec()));
        std::fs::remove_file(&pipe).unwrap();
    }
}
