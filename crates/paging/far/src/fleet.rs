//! Connections that wait for their answers, to all servers behind one name: a single server, the
//! one that sentinels name, or a cluster's servers, where each command goes to the server with its
//! keys.

use crate::client::{self, Client, Error};
use crate::info::Info;
use crate::resp::Reply;
use crate::slots::{Map, Redirect, is_of_cluster, slot_of};
use crate::url::{Address, Server};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// How long one of several servers may take to report the slots before another is asked.
const TURN: Duration = Duration::from_secs(1);

/// The servers to which there are connections.
pub struct Fleet {
    server: Server,
    until: Instant,
    /// Of a cluster.
    map: Option<Map>,
    clients: Vec<(Option<SocketAddr>, Client)>,
}

/// The addresses of all named hosts.
///
/// # Errors
/// None of them has an address.
pub fn addresses(server: &Server) -> Result<Vec<SocketAddr>, Error> {
    let Address::Tcp(host, port) = &server.address else { return Ok(Vec::new()) };
    let (mut all, mut failed) = (Vec::new(), None);
    if server.numbers.is_empty() {
        match client::resolve(host, *port) {
            Ok(found) => all.extend(found),
            Err(error) => failed = Some(error),
        }
    }
    all.extend(server.numbers.iter().map(|&number| SocketAddr::new(number, *port)));
    for (host, port) in &server.seeds {
        match client::resolve(host, *port) {
            Ok(found) => all.extend(found),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if all.is_empty() => Err(Error::Name(error)),
        _ => Ok(all),
    }
}

/// The address that a sentinel gives for the server of that name.
pub fn master(reply: &Reply, name: &str) -> Result<SocketAddr, String> {
    match reply {
        Reply::Array(words) if words.len() == 2 => {
            let word = |index: usize| words[index].text().unwrap_or_default();
            let place = word(0).parse().ok().zip(word(1).parse().ok());
            let no = || {
                format!(
                    "the sentinel names the server '{name}' by something other than an \
                                 address ({})",
                    word(0)
                )
            };
            place.map(|(host, port)| SocketAddr::new(host, port)).ok_or_else(no)
        }
        Reply::Error(why) => Err(format!("the sentinel says '{}'", crate::refusals::plain(why))),
        _ => Err(format!("the sentinel knows no server '{name}'")),
    }
}

impl Fleet {
    /// Connects to one of the servers, and asks for the others.
    ///
    /// # Errors
    /// None can be spoken to.
    pub fn connect(server: &Server, time: Duration) -> Result<Fleet, Error> {
        let until = Instant::now() + time;
        let mut fleet = Fleet { server: server.clone(), until, map: None, clients: Vec::new() };
        if server.sentinel.is_some() {
            let found = fleet.ask_sentinels()?;
            let client = Client::connect(&server.at(found), fleet.left())?;
            fleet.clients.push((Some(found), client));
            return Ok(fleet);
        }
        if server.cluster == Some(true) {
            fleet.refresh()?;
            return Ok(fleet);
        }
        let mut client = Client::connect(server, time)?;
        let is_cluster = server.cluster.is_none() && {
            match &client.ask(&[&[b"INFO", b"cluster"]])?[..] {
                [reply] => Info::parse(&reply.text().unwrap_or_default()).is_cluster,
                _ => false,
            }
        };
        if is_cluster {
            fleet.refresh()?;
        } else {
            fleet.clients.push((None, client));
        }
        Ok(fleet)
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Whether a command may have only one key.
    pub fn is_cluster(&self) -> bool {
        self.map.is_some()
    }

    /// All following requests must be answered within `time` from now on.
    pub fn within(&mut self, time: Duration) {
        self.until = Instant::now() + time;
        self.clients.iter_mut().for_each(|(_, client)| client.within(time));
    }

    fn ask_sentinels(&self) -> Result<SocketAddr, Error> {
        let name = self.server.sentinel.as_deref().unwrap_or_default();
        let words: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name.as_bytes()];
        let mut last = Error::Refused("the name has no address".to_owned());
        for address in addresses(&self.server)? {
            for with_password in [false, true] {
                let sentinel = self.server.sentinel_at(address, with_password);
                let said = Client::connect(&sentinel, self.left().min(TURN))
                    .and_then(|mut client| client.ask(&[&words]))
                    .map(|replies| master(&replies[0], name));
                match said {
                    Ok(Ok(found)) => return Ok(found),
                    Ok(Err(why)) => last = Error::Refused(why),
                    Err(error) => last = error,
                }
                let wants = matches!(&last, Error::Refused(why) if why.contains("NOAUTH"));
                if !wants || self.server.password.is_none() {
                    break;
                }
            }
        }
        Err(last)
    }

    /// Asks the known servers, one after another, which server has which slots.
    fn refresh(&mut self) -> Result<(), Error> {
        let known = self.map.iter().flat_map(|map| map.masters().into_iter().chain(map.replicas.clone()));
        let mut all: Vec<SocketAddr> = known.collect();
        let named = addresses(&self.server);
        all.extend(named.as_deref().unwrap_or_default());
        let mut last = named.err().unwrap_or_else(|| Error::Refused("the name has no address".to_owned()));
        for address in all {
            let said = Client::connect(&self.server.at(address), self.left().min(TURN))
                .and_then(|mut client| client.call(&[b"CLUSTER", b"SLOTS"]));
            match said.map(|reply| Map::parse(&reply, address)) {
                Ok(Ok(map)) => {
                    self.map = Some(map);
                    return Ok(());
                }
                Ok(Err(why)) => last = Error::Refused(why),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn client_of(&mut self, place: Option<SocketAddr>) -> Result<&mut Client, Error> {
        let index = match self.clients.iter().position(|(known, _)| *known == place) {
            Some(index) => index,
            None => {
                let server = place.map_or_else(|| self.server.clone(), |place| self.server.at(place));
                let client = Client::connect(&server, self.left())?;
                self.clients.push((place, client));
                self.clients.len() - 1
            }
        };
        Ok(&mut self.clients[index].1)
    }

    /// The server for a command: the one with its first key. `None` if there is only one server.
    fn place_of(&self, words: &[&[u8]]) -> Result<Option<SocketAddr>, Error> {
        let Some(map) = &self.map else { return Ok(self.clients.first().and_then(|(place, _)| *place)) };
        let has_key = words.len() > 1 && !matches!(words[0], b"INFO" | b"CLIENT" | b"CLUSTER");
        let place = if has_key { map.owner(slot_of(words[1])) } else { map.masters().first().copied() };
        place.map(Some).ok_or_else(|| Error::Refused("CLUSTERDOWN no server has the slot".to_owned()))
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
    /// A server does not answer.
    pub fn ask(&mut self, commands: &[&[&[u8]]]) -> Result<Vec<Reply>, Error> {
        if self.map.is_none() {
            let place = self.place_of(&[])?;
            return self.client_of(place)?.ask(commands);
        }
        let mut replies: Vec<Option<Reply>> = vec![None; commands.len()];
        loop {
            let failed = self.try_all(commands, &mut replies);
            if let (Ok(()), true) = (&failed, replies.iter().all(Option::is_some)) {
                return Ok(replies.into_iter().flatten().collect());
            }
            if self.left().is_zero() {
                return Err(failed.err().unwrap_or_else(|| Error::Refused("TRYAGAIN".to_owned())));
            }
            std::thread::sleep(PAUSE);
            self.refresh()?;
        }
    }

    /// Sends the commands without a reply to the servers with their keys.
    fn try_all(&mut self, commands: &[&[&[u8]]], replies: &mut [Option<Reply>]) -> Result<(), Error> {
        let mut places: Vec<(Option<SocketAddr>, Vec<usize>)> = Vec::new();
        for index in (0..commands.len()).filter(|&index| replies[index].is_none()) {
            let place = self.place_of(commands[index])?;
            match places.iter_mut().find(|(known, _)| *known == place) {
                Some((_, all)) => all.push(index),
                None => places.push((place, vec![index])),
            }
        }
        for (place, all) in places {
            let of_place: Vec<&[&[u8]]> = all.iter().map(|&index| commands[index]).collect();
            let got = self.client_of(place).and_then(|client| client.ask(&of_place));
            if got.is_err() {
                self.clients.retain(|(known, _)| *known != place);
            }
            for (index, reply) in all.into_iter().zip(got?) {
                replies[index] = self.redirected(place, commands[index], reply)?;
            }
        }
        Ok(())
    }

    /// The reply, or that of the server to which it redirects once; `None`: the command must be
    /// sent again.
    fn redirected(
        &mut self,
        place: Option<SocketAddr>,
        words: &[&[u8]],
        reply: Reply,
    ) -> Result<Option<Reply>, Error> {
        let Reply::Error(why) = &reply else { return Ok(Some(reply)) };
        let to = self.map.as_ref().zip(place).and_then(|(map, place)| map.redirect(why, place));
        if let Some(Redirect::Ask(to)) = to {
            let mut got = self.client_of(Some(to))?.ask(&[&[b"ASKING"], words])?;
            return Ok(got.pop().filter(|reply| !matches!(reply, Reply::Error(why) if is_of_cluster(why))));
        }
        Ok(if is_of_cluster(why) { None } else { Some(reply) })
    }

    /// Calls a function for each server with keys.
    ///
    /// # Errors
    /// One of them cannot be used; the error names it if there are several.
    pub fn each<E: From<Error>>(
        &mut self,
        mut act: impl FnMut(Option<SocketAddr>, &mut Client) -> Result<(), E>,
    ) -> Result<(), E> {
        let places = match &self.map {
            Some(map) => map.masters().into_iter().map(Some).collect(),
            None => vec![self.place_of(&[])?],
        };
        for place in places {
            act(place, self.client_of(place)?)?;
        }
        Ok(())
    }

    /// A command for the server at `place`; any answer suffices.
    ///
    /// # Errors
    /// It does not answer.
    pub fn tell(&mut self, place: Option<SocketAddr>, words: &[&[u8]]) -> Result<(), Error> {
        let place = if self.map.is_some() { place } else { self.place_of(&[])? };
        self.client_of(place)?.ask(&[words]).map(drop)
    }
}
