//! The descriptions of namespaces, and their removal.
//!
//! A registry key, a hash, describes a namespace: where it is from, how many values it may have,
//! when it last gave a sign of life (`beat`, by the server's clock), and one field for each process
//! that [holds](crate::holder) it, because the children of a fork read their parents' blocks. The
//! last holder removes the namespace. If none of them could, others do: at once if they are on the
//! same machine and see that the processes have ended, otherwise after a time without a beat.

use crate::client::{self, Client, Error};
use crate::fleet::Fleet;
use crate::holder::{FIELD, Holder, VALUES, has_left, is_gone, is_of_child};
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

/// The most bytes of ended processes that a start removes in a second.
const SWEPT_PER_S: u64 = 8 << 30;

/// Bytes that a server must have room for at the start.
const ROOM_LEAST: u64 = 8 << 20;

/// Seconds since 1970, by this machine's clock.
pub(crate) fn now_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The registry's fields, with their values.
pub(crate) fn fields(holder: &Holder, values: (String, u32), block: usize) -> Vec<(String, String)> {
    let field = |name: &str, value: String| (name.to_owned(), value);
    vec![
        field("host", host()),
        field("pid", std::process::id().to_string()),
        field("started", now_s().to_string()),
        (values.0, values.1.to_string()),
        field("block", block.to_string()),
        field("version", env!("CARGO_PKG_VERSION").to_owned()),
        holder.claim(),
    ]
}

/// Before a fork: has a server note the claims of children, that of the coming child among them.
pub(crate) fn share(
    server: &Server,
    space: &Namespace,
    holder: &mut Holder,
    time: Duration,
) -> Result<(), Error> {
    let mut client = Fleet::connect(server, time)?;
    let (registry, (claims, last)) = (space.registry(), holder.unnoted());
    client.call(&set_all(&registry, &claims))?;
    holder.noted(last);
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
    // Those first that only this process may know of.
    let (children, _) = holder.unnoted();
    let claims = set_all(&registry, &children);
    let ended: Vec<String> = holder.ended().collect();
    let mut words: Vec<&[u8]> = vec![b"HDEL", &registry];
    ended.iter().for_each(|field| words.push(field.as_bytes()));
    let all: [&[&[u8]]; 3] = [&claims, &words, &[b"HGETALL", &registry]];
    let commands = if children.is_empty() { &all[1..] } else { &all };
    let left = match client.ask(commands)?.pop() {
        Some(Reply::Error(why)) => return Err(Error::Refused(why)),
        Some(reply @ Reply::Array(_)) => hash(&reply),
        // The number of values is not known in advance.
        _ => return Err(Error::Broken(std::io::ErrorKind::InvalidData.into())),
    };
    match state_of(&left) {
        State::Held => Ok(()),
        State::Undescribed => client.call(&[b"HDEL", &registry, SIGNS[0], SIGNS[1]]).map(drop),
        State::Nobodys => remove(&mut client, server, space, values_of(&left), None),
    }
}

/// The state of a namespace from which a process has taken its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Others hold it.
    Held,
    /// The server has lost the description, and what it described. Whoever describes the namespace
    /// anew at this moment keeps it: only what signs of life have left is removed.
    Undescribed,
    /// It is to be removed.
    Nobodys,
}

/// The fields of signs of life.
pub(crate) const SIGNS: [&[u8]; 2] = [b"beat", b"made"];

pub(crate) fn state_of(left: &HashMap<String, String>) -> State {
    let has = |prefix: &str| left.keys().any(|name| name.starts_with(prefix));
    match (has(FIELD), has(VALUES)) {
        (true, _) => State::Held,
        (false, false) => State::Undescribed,
        (false, true) => State::Nobodys,
    }
}

/// The command that sets fields of a registry.
pub(crate) fn set_all<'a>(registry: &'a [u8], fields: &'a [(String, String)]) -> Vec<&'a [u8]> {
    let mut words: Vec<&[u8]> = vec![b"HSET", registry];
    fields.iter().for_each(|(name, value)| words.extend([name.as_bytes(), value.as_bytes()]));
    words
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
    let of_all = described.iter().filter(|(name, _)| name.starts_with(VALUES));
    let most = of_all.filter_map(|(_, number)| number.parse::<u64>().ok()).max();
    most.unwrap_or(0).min(1 << 24) as u32
}

fn holders_of(described: &HashMap<String, String>) -> impl Iterator<Item = &String> {
    described.iter().filter(|(name, _)| name.starts_with(FIELD)).map(|(_, holder)| holder)
}

/// The numbers of its processes, or only of forked children, ascending.
fn numbers_of(described: &HashMap<String, String>, only_children: bool) -> Vec<u32> {
    let number = |claim: &String| claim.split(' ').nth(1)?.parse().ok();
    let fits = |field: &String| field.starts_with(FIELD) && (!only_children || is_of_child(field));
    let claims = described.iter().filter(|(field, _)| fits(field)).map(|(_, claim)| claim);
    let mut numbers: Vec<u32> = claims.filter_map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
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
    /// The numbers of the processes that hold it, as far as they have said so.
    pub held_by: Vec<u32>,
    /// Those of them that were forked, and read what the process that made it wrote.
    pub children: Vec<u32>,
    values: u32,
}

impl Listed {
    /// Where those of its processes are that hold up its removal: forked children, if there are
    /// any.
    pub fn processes(&self) -> String {
        let all = if self.children.is_empty() { &self.held_by } else { &self.children };
        let numbers: Vec<String> = all.iter().map(u32::to_string).collect();
        format!("PID {} on {}", numbers.join(", "), self.host)
    }
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
            held_by: numbers_of(&described, false),
            children: numbers_of(&described, true),
            bytes: number(&described, "made") * (EXTENT as u64).saturating_sub(block).max(block),
            is_dead: is_dead(&described, now_s, grace),
            values: values_of(&described),
            name,
        });
    }
    Ok(found)
}

/// Removes dead namespaces from a server, at most `bytes_per_s`; returns the removed namespaces.
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
