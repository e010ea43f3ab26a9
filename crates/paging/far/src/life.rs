//! The holders of a namespace, and its removal.
//!
//! A registry key, a hash, describes a namespace: where it is from, how many values it may have,
//! when it last gave a sign of life (`beat`, by the server's clock), and one field for each process
//! that holds it, because the children of a fork read their parents' blocks. The last holder
//! removes the namespace. If none of them could, others do: at once if they are on the same machine
//! and see that the processes have ended, otherwise after a time without a beat.

use crate::client::{self, Client, Error};
use crate::fleet::Fleet;
use crate::info::Info;
use crate::namespace::{self, Namespace};
use crate::resp::Reply;
use crate::url::Server;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use terapage_store::EXTENT;

/// How long a server may take to answer when no thread waits for blocks.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of keys in one removal, and the time for which a remover has the lock of a namespace,
/// seconds.
const REMOVED: usize = 256;
pub(crate) const LOCK_S: &str = "30";

/// The prefix of a holder's field.
const FIELD: &str = "h:";

/// The mark of a holder that was about to execute another program, and the age of its last sign of
/// life, seconds, from which on it counts as gone: three beats.
const LEFT: &str = "exec";
const LEFT_S: u64 = 30;

/// The most bytes of ended processes that a start removes in a second.
const SWEPT_PER_S: u64 = 8 << 30;

/// Bytes that a server must have room for at the start.
const ROOM_LEAST: u64 = 8 << 20;

/// A process that holds a namespace.
#[derive(Clone, Debug)]
pub struct Holder {
    id: String,
    /// Children that have ended and are still noted there.
    gone: Vec<String>,
    /// The last fork.
    next: Option<u32>,
    /// Forks whose children hold it.
    shared: Vec<u32>,
    /// Whether its field describes the process that forked.
    is_claimed: bool,
}

/// This machine since its last boot, and a process of it since the process's start.
fn this_boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    // In another PID namespace, numbers mean other processes.
    let numbers = std::fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string());
    format!("{boot}/{}", numbers.unwrap_or_default())
}

/// The kernel's information about a process.
#[derive(PartialEq, Eq)]
enum Told {
    /// It has ended.
    Gone,
    /// The process began at this time, in the kernel's ticks.
    Began(u64),
    /// The process exists; nothing else is known.
    There,
}

fn told_of(pid: u32) -> Told {
    // Negative numbers mean groups of processes.
    let Ok(number) = i32::try_from(pid) else { return Told::Gone };
    // SAFETY: no signal is sent.
    let is_there = unsafe { libc::kill(number, 0) } == 0;
    if !is_there && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        return Told::Gone;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(')') else { return Told::There };
    let mut fields = rest.split_ascii_whitespace();
    let is_zombie = fields.next() == Some("Z");
    let threads = fields.nth(16).and_then(|threads| threads.parse::<u32>().ok());
    // A zombie process has nothing left. A process of which only the first thread has ended looks
    // the same, but continues.
    if is_zombie && threads.is_some_and(|threads| threads <= 1) {
        return Told::Gone;
    }
    fields.nth(1).and_then(|start| start.parse().ok()).map_or(Told::There, Told::Began)
}

fn this_process() -> String {
    let pid = std::process::id();
    let start = if let Told::Began(start) = told_of(pid) { start } else { 0 };
    format!("{} {pid} {start}", this_boot())
}

/// Whether the process in a holder's field has certainly ended.
fn is_gone(field: &str) -> bool {
    let mut words = field.split(' ');
    let (boot, pid, start) = (words.next(), words.next(), words.next());
    let (Some(boot), Some(pid), Some(start)) = (boot, pid, start) else { return false };
    let (Ok(pid), Ok(start)) = (pid.parse(), start.parse::<u64>()) else { return false };
    // Without /proc all machines look the same, and processes have no start time.
    let is_here = boot == this_boot() && boot.len() > 32 && start > 0;
    is_here
        && matches!(words.next(), None | Some(LEFT))
        && match told_of(pid) {
            Told::Gone => true,
            Told::Began(began) => began != start,
            Told::There => false,
        }
}

/// Whether it was about to execute another program, and has given no sign of life since.
fn has_left(field: &str, beat_age_s: u64) -> bool {
    field.split(' ').nth(3) == Some(LEFT) && beat_age_s > LEFT_S
}

/// Seconds since 1970, by this machine's clock.
pub(crate) fn now_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

impl Holder {
    /// This process, which has made the namespace.
    pub fn of_this_process(space: &Namespace) -> Holder {
        Holder { id: space.name(), gone: Vec::new(), next: None, shared: Vec::new(), is_claimed: true }
    }

    fn field(&self) -> String {
        format!("{FIELD}{}", self.id)
    }

    /// The registry's fields, with their values.
    pub fn fields(&self, values: u32, block: usize) -> Vec<(String, String)> {
        let field = |name: &str, value: String| (name.to_owned(), value);
        vec![
            field("host", host()),
            field("pid", std::process::id().to_string()),
            field("started", now_s().to_string()),
            field("values", values.to_string()),
            field("block", block.to_string()),
            field("version", env!("CARGO_PKG_VERSION").to_owned()),
            (self.field(), this_process()),
        ]
    }

    /// The change that claims the field of a fork's child for this process: once.
    pub fn claim(&mut self) -> Option<(String, String)> {
        (!std::mem::replace(&mut self.is_claimed, true)).then(|| (self.field(), this_process()))
    }

    /// The change by which this process notes in its field that it is about to leave. It claims the
    /// field again with its next sign of life, if there is one.
    pub fn leave(&mut self) -> (String, String) {
        self.is_claimed = false;
        (self.field(), format!("{} {LEFT}", this_process()))
    }

    /// The field of the child of this process's fork of that number.
    fn field_of_child(&self, fork: u32) -> String {
        format!("{FIELD}{}.{fork}", self.id)
    }

    /// A fork's child will hold nothing.
    pub fn share_nothing(&mut self) {
        self.next = None;
    }

    /// In the child: it becomes the holder that was noted before the fork.
    pub fn inherit(&mut self) {
        if let Some(fork) = self.next.take() {
            self.id = format!("{}.{fork}", self.id);
            self.is_claimed = false;
        }
        self.shared.clear();
        self.gone.clear();
    }

    /// The child of that fork, and all its descendants, have ended.
    pub fn child_gone(&mut self, fork: u32) {
        if self.shared.contains(&fork) {
            self.shared.retain(|&shared| shared != fork);
            self.gone.push(self.field_of_child(fork));
        }
    }

    /// The fields of ended holders, which must be removed.
    pub fn take_gone(&mut self) -> Vec<String> {
        std::mem::take(&mut self.gone)
    }
}

/// Before a fork: notes that the child will hold the namespace.
pub fn share(
    server: &Server,
    space: &Namespace,
    holder: &mut Holder,
    fork: u32,
    time: Duration,
) -> Result<(), Error> {
    let mut client = Fleet::connect(server, time)?;
    let field = holder.field_of_child(fork);
    // One word more than a process's field, so that other processes do not consider it gone.
    let what = format!("{} forked", this_process());
    client.call(&[b"HSET", &space.registry(), field.as_bytes(), what.as_bytes()])?;
    holder.next = Some(fork);
    holder.shared.push(fork);
    Ok(())
}

/// The process no longer holds the namespace; a namespace without holders is removed. A connection
/// that is cut is made again, within the time.
///
/// `clients`: its connections, whose commands the server may not have executed yet.
pub fn let_go(
    server: &Server,
    space: &Namespace,
    holder: &Holder,
    time: Duration,
    clients: &[(Option<SocketAddr>, u64)],
) -> Result<(), Error> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match let_go_at_once(server, space, holder, left, clients) {
            Err(Error::Broken(_)) if Instant::now() < until => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
}

fn let_go_at_once(
    server: &Server,
    space: &Namespace,
    holder: &Holder,
    time: Duration,
    clients: &[(Option<SocketAddr>, u64)],
) -> Result<(), Error> {
    let mut client = Fleet::connect(server, time)?;
    for (place, id) in clients {
        let told = client.tell(*place, &[b"CLIENT", b"KILL", b"ID", id.to_string().as_bytes()]);
        // A server of a cluster may be gone for good.
        if !client.is_cluster() {
            told?;
        }
    }
    let registry = space.registry();
    let mine = holder.field();
    let mut words: Vec<&[u8]> = vec![b"HDEL", &registry, mine.as_bytes()];
    holder.gone.iter().for_each(|field| words.push(field.as_bytes()));
    let described = match client.ask(&[&words, &[b"HGETALL", &registry]])?.pop() {
        Some(Reply::Error(why)) => return Err(Error::Refused(why)),
        Some(reply @ Reply::Array(_)) => hash(&reply),
        // The number of values is not known in advance.
        _ => return Err(Error::Broken(std::io::ErrorKind::InvalidData.into())),
    };
    if described.keys().any(|name| name.starts_with(FIELD)) {
        return Ok(());
    }
    remove(&mut client, server, space, values_of(&described), None)
}

/// Removes a namespace's keys, all at once or in steps, at a limited number of bytes of values per
/// second. The name is removed last, so that an interrupted removal can be found again.
fn remove(
    client: &mut Fleet,
    server: &Server,
    space: &Namespace,
    values: u32,
    bytes_per_s: Option<(u64, u64)>,
) -> Result<(), Error> {
    let keys: Vec<Vec<u8>> = (0..values).map(|value| space.value(value)).collect();
    let unlink = |keys: &[Vec<u8>]| -> Vec<Vec<u8>> {
        std::iter::once(b"UNLINK".to_vec()).chain(keys.iter().cloned()).collect()
    };
    // In a cluster each key is elsewhere.
    let each = if client.is_cluster() { 1 } else { REMOVED };
    let mut commands: Vec<Vec<Vec<u8>>> = keys.chunks(each).map(unlink).collect();
    commands.push(unlink(&[space.registry()]));
    commands.push(vec![b"SREM".to_vec(), namespace::all(&server.prefix), space.name().into_bytes()]);
    let step = if bytes_per_s.is_some() { REMOVED / each } else { commands.len() };
    for commands in commands.chunks(step) {
        let words: Vec<Vec<&[u8]>> =
            commands.iter().map(|words| words.iter().map(Vec::as_slice).collect()).collect();
        let words: Vec<&[&[u8]]> = words.iter().map(Vec::as_slice).collect();
        for reply in client.ask(&words)? {
            if let Reply::Error(why) = reply {
                return Err(Error::Refused(why));
            }
        }
        if let Some((rate, value)) = bytes_per_s {
            let keys: usize = commands.iter().map(|words| words.len() - 1).sum();
            std::thread::sleep(Duration::from_secs_f64(keys as f64 * value as f64 / rate as f64));
            client.within(ANSWER_TIME);
            client.call(&[b"SET", &space.sweeper(), b"1", b"XX", b"EX", LOCK_S.as_bytes()])?;
        }
    }
    Ok(())
}

pub(crate) fn hash(reply: &Reply) -> HashMap<String, String> {
    let pairs = reply.elements().chunks_exact(2);
    pairs.filter_map(|pair| Some((pair[0].text()?, pair[1].text()?))).collect()
}

fn number(described: &HashMap<String, String>, name: &str) -> u64 {
    described.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub(crate) fn values_of(described: &HashMap<String, String>) -> u32 {
    number(described, "values").min(1 << 24) as u32
}

fn holders_of(described: &HashMap<String, String>) -> impl Iterator<Item = &String> {
    described.iter().filter(|(name, _)| name.starts_with(FIELD)).map(|(_, holder)| holder)
}

/// The time since its last sign of life, or, before the first one, since its start.
fn beat_age_s(described: &HashMap<String, String>, now_s: u64) -> u64 {
    let beat = if described.contains_key("beat") { "beat" } else { "started" };
    now_s.saturating_sub(number(described, beat))
}

/// Whether a namespace has no holders.
pub(crate) fn is_dead(described: &HashMap<String, String>, now_s: u64, grace: Duration) -> bool {
    let beat_age_s = beat_age_s(described, now_s);
    holders_of(described).all(|holder| is_gone(holder) || has_left(holder, beat_age_s))
        || beat_age_s > grace.as_secs()
}

/// A namespace, as described on its server.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The host that made it.
    pub host: String,
    /// The process that made it.
    pub pid: u64,
    /// The time of its making, seconds since 1970.
    pub started_s: u64,
    /// The time since its last sign of life, seconds.
    pub beat_age_s: u64,
    /// The number of processes that hold it.
    pub holders: usize,
    /// The bytes that it uses.
    pub bytes: u64,
    /// Whether it has no holders.
    pub is_dead: bool,
    values: u32,
}

/// The namespaces on a server. A namespace without a sign of life for `grace` is dead, and so is
/// one whose processes were on this machine and have ended.
///
/// # Errors
/// The server cannot be asked.
pub fn list(server: &Server, grace: Duration) -> Result<Vec<Listed>, Error> {
    let mut client = Fleet::connect(server, ANSWER_TIME)?;
    listed(&mut client, server, grace)
}

fn listed(client: &mut Fleet, server: &Server, grace: Duration) -> Result<Vec<Listed>, Error> {
    let all = namespace::all(&server.prefix);
    let now = client.call(&[b"TIME"])?;
    let now_s: u64 =
        now.elements().first().and_then(Reply::text).and_then(|text| text.parse().ok()).unwrap_or(0);
    let names = client.call(&[b"SMEMBERS", &all])?;
    let mut names: Vec<String> = names.elements().iter().filter_map(Reply::text).collect();
    names.sort_unstable();
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let Ok(id) = u64::from_str_radix(&name, 16) else { continue };
        client.within(ANSWER_TIME);
        let described = client.call(&[b"HGETALL", &Namespace::of(&server.prefix, id).registry()])?;
        let described = hash(&described);
        let block = number(&described, "block");
        found.push(Listed {
            host: described.get("host").cloned().unwrap_or_default(),
            pid: number(&described, "pid"),
            started_s: number(&described, "started"),
            beat_age_s: beat_age_s(&described, now_s),
            holders: holders_of(&described).count(),
            bytes: number(&described, "made") * (EXTENT as u64).saturating_sub(block).max(block),
            is_dead: is_dead(&described, now_s, grace),
            values: values_of(&described),
            name,
        });
    }
    Ok(found)
}

/// Removes dead namespaces from a server, at most `bytes_per_s`; returns the removed ones.
///
/// # Errors
/// The server cannot be asked.
pub fn sweep(server: &Server, grace: Duration, bytes_per_s: u64) -> Result<Vec<Listed>, Error> {
    let mut client = Fleet::connect(server, ANSWER_TIME)?;
    let mut removed = Vec::new();
    for found in listed(&mut client, server, grace)?.into_iter().filter(|found| found.is_dead) {
        let Ok(id) = u64::from_str_radix(&found.name, 16) else { continue };
        let space = Namespace::of(&server.prefix, id);
        client.within(ANSWER_TIME);
        let lock = client.call(&[b"SET", &space.sweeper(), b"1", b"NX", b"EX", LOCK_S.as_bytes()])?;
        if lock == Reply::Null {
            continue;
        }
        remove(&mut client, server, &space, found.values, Some((bytes_per_s, EXTENT as u64)))?;
        client.call(&[b"UNLINK", &space.sweeper()])?;
        removed.push(found);
    }
    Ok(removed)
}

/// Says on a server that it is to be emptied, or is not. Programs hear of it with their next sign
/// of life.
///
/// # Errors
/// The server cannot be asked.
pub fn drain(server: &Server, on: bool) -> Result<(), Error> {
    let mut client = Fleet::connect(server, ANSWER_TIME)?;
    let key = namespace::drain(&server.prefix);
    let words: &[&[u8]] = if on { &[b"SET", &key, b"1"] } else { &[b"UNLINK", &key] };
    client.call(words).map(drop)
}

/// Whether a server can hold blocks now. If it has little room, the blocks of ended processes are
/// removed first: where no program can start, no idle one could remove them.
///
/// # Errors
/// It cannot; the reason follows its name.
pub fn check(server: &Server) -> Result<Checked, NotFit> {
    let found = look(server);
    let (is_tight, is_full) = match &found {
        Ok(checked) => (checked.is_tight, false),
        Err(not_fit) => (not_fit.is_full, not_fit.is_full),
    };
    let removes = || sweep(server, server.grace, SWEPT_PER_S).is_ok_and(|removed| !removed.is_empty());
    if !is_tight || !removes() || !is_full {
        return found;
    }
    // The server answers first, and frees memory afterwards.
    let until = Instant::now() + ANSWER_TIME;
    loop {
        match look(server) {
            Err(not_fit) if not_fit.is_full && Instant::now() < until => std::thread::sleep(PAUSE),
            found => return found,
        }
    }
}

/// One look at a server.
fn look(server: &Server) -> Result<Checked, NotFit> {
    let said = |error: Error| match error {
        Error::Refused(why) => NotFit::from(crate::refusals::told(&why)),
        other => NotFit::from(other),
    };
    let time = ANSWER_TIME.min(server.stall);
    if server.seeds.is_empty() && server.sentinel.is_none() {
        client::first(server, time).map_err(said)?;
    }
    let mut fleet = Fleet::connect(server, time).map_err(said)?;
    let is_cluster = fleet.is_cluster();
    let mut checked =
        Checked { is_replicated: is_cluster || server.sentinel.is_some(), ..Checked::default() };
    let mut check = |place: Option<SocketAddr>, client: &mut Client| -> Result<(), NotFit> {
        let of_place = |not_fit: NotFit| match place {
            Some(place) if is_cluster => {
                NotFit { why: format!("has a server, {place}, that {}", not_fit.why), ..not_fit }
            }
            _ => not_fit,
        };
        let info = client.call(&[b"INFO"]).map_err(|error| of_place(said(error)))?;
        let info = Info::parse(&info.text().unwrap_or_default());
        is_fit(&info, server).map_err(of_place)?;
        checked.is_tight |= info.is_tight();
        checked.warnings.extend(info.warnings());
        checked.run_ids.push(info.run_id);
        Ok(())
    };
    fleet.each(&mut check)?;
    checked.warnings.sort_unstable();
    checked.warnings.dedup();
    try_rights(&mut fleet, server, &mut checked.warnings)?;
    Ok(checked)
}

/// The results of a check.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Warnings, one line each, which follow the name.
    pub warnings: Vec<String>,
    /// The `run_id` of each of its servers with blocks.
    pub run_ids: Vec<String>,
    /// Whether a replica may replace a server, and lack its last writes.
    pub is_replicated: bool,
    /// Whether one of its servers has little room left.
    pub is_tight: bool,
}

/// Why a server is none for blocks.
#[derive(Debug)]
pub struct NotFit {
    /// To be said behind its name.
    pub why: String,
    /// There was no answer: it may come back.
    pub is_absent: bool,
    /// It has no room.
    pub is_full: bool,
}

impl From<String> for NotFit {
    fn from(why: String) -> NotFit {
        NotFit { why, is_absent: false, is_full: false }
    }
}

impl From<Error> for NotFit {
    fn from(error: Error) -> NotFit {
        let is_absent = matches!(&error, Error::Connect(_) | Error::Broken(_));
        NotFit { why: error.to_string(), is_absent, is_full: false }
    }
}

fn is_fit(info: &Info, server: &Server) -> Result<(), NotFit> {
    if let Some(why) = info.refusal() {
        return Err(why.into());
    }
    if server.cluster == Some(true) && !info.is_cluster {
        return Err("is not a cluster: leave cluster=yes out".to_owned().into());
    }
    if info.is_loading {
        return Err("is loading its data: try again when it has finished".to_owned().into());
    }
    if info.room_bytes().is_some_and(|room| room < ROOM_LEAST) {
        let why = format!(
            "is full: {} of {} MiB are used (see whose they are: terapage far ls {}; remove what ended \
             programs left: terapage far sweep; or raise its maxmemory, or name another --store)",
            info.memory_used >> 20,
            info.memory_max >> 20,
            server.shown()
        );
        return Err(NotFit { is_full: true, ..why.into() });
    }
    Ok(())
}

/// Tries the pager's commands.
fn try_rights(client: &mut Fleet, server: &Server, warnings: &mut Vec<String>) -> Result<(), String> {
    let id = namespace::random().map_err(|error| error.to_string())?;
    let key = namespace::probe(&server.prefix, id);
    let other = namespace::probe(&server.prefix, id.wrapping_add(1));
    let tries: [&[&[u8]]; 8] = [
        &[b"SETRANGE", &key, b"0", b"x"],
        &[b"GETRANGE", &key, b"0", b"0"],
        &[b"HSET", &other, b"a", b"b"],
        &[b"HDEL", &other, b"b"],
        &[b"HGETALL", &other],
        &[b"TIME"],
        &[b"UNLINK", &key],
        &[b"UNLINK", &other],
    ];
    client.within(ANSWER_TIME);
    let replies = client.ask(&tries).map_err(|error| error.to_string())?;
    for (words, reply) in tries.iter().zip(&replies) {
        if let Reply::Error(why) = reply {
            let command = String::from_utf8_lossy(words[0]).into_owned();
            return Err(format!("cannot be used: {command}: {}", crate::refusals::told(why)));
        }
    }
    if replies[1] != Reply::Bulk(b"x".to_vec()) {
        return Err("cannot be used: it returns other bytes than were written".to_owned());
    }
    let others: [&[&[u8]]; 3] = [
        &[b"SADD", &namespace::all(&server.prefix), b"-"],
        &[b"SREM", &namespace::all(&server.prefix), b"-"],
        &[b"CLIENT", b"KILL", b"ID", b"9223372036854775807"],
    ];
    let replies = client.ask(&others).map_err(|error| error.to_string())?;
    if let Reply::Error(why) = &replies[0] {
        return Err(format!("cannot be used: SADD: {}", crate::refusals::told(why)));
    }
    if matches!(&replies[2], Reply::Error(why) if why.starts_with("NOPERM")) {
        warnings.push(
            "does not let its user end connections (+client|kill): a connection that is cut in a \
             write would stop the program"
                .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_was_about_to_leave_is_gone_if_it_shows_no_life() {
        let space = Namespace::of("", 1);
        let mut holder = Holder::of_this_process(&space);
        assert_eq!(holder.claim(), None);
        let (field, left) = holder.leave();
        assert!(!is_gone(&left) && !has_left(&left, LEFT_S) && has_left(&left, LEFT_S + 1));
        let (same, stays) = holder.claim().unwrap();
        assert_eq!(same, field);
        assert!(!is_gone(&stays) && !has_left(&stays, 1000));
        let none = format!("{} {} 1", this_boot(), u32::MAX);
        assert!(is_gone(&none) && is_gone(&format!("{none} {LEFT}")) && !is_gone(&format!("{none} forked")));
    }
}
