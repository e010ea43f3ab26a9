//! The stores of the contender `far`: servers that the user names, or servers that the lab starts
//! and ends.

use crate::contender::terapage::terapage_program;
use crate::experiment::{Cell, Experiment};
use crate::ground::janitor::Thing;
use crate::ground::network::run;
use crate::ground::site::Site;
use crate::ground::undo::{self, Undo};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};
use terapage_config::Size;

/// The time in which a server must start. Chosen, not measured.
const START: Duration = Duration::from_secs(20);
/// Bytes that a server needs beside the blocks. Chosen, not measured.
const ROOM: u64 = 64 << 20;
/// The value of `--far` if it is given without a value.
pub const DEFAULT: &str = "loopback";

/// The place of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// Servers that the user names, by URL.
    Named(Vec<String>),
    /// Servers that the lab starts on this machine, reached by TCP.
    Loopback,
    /// The same, reached by Unix sockets.
    Unix,
    /// As `Loopback`, with each server in a network namespace at the other end of a pair of virtual
    /// network cards. If there is a rate, it limits the link.
    Veth(Option<String>),
}

impl Where {
    /// The servers that the values of `--far` name; `None` if there are no values.
    ///
    /// # Errors
    /// A value is neither a URL nor a kind of server.
    pub fn parse(values: &[String]) -> anyhow::Result<Option<Where>> {
        let [first, more @ ..] = values else { return Ok(None) };
        let own = match first.as_str() {
            "loopback" => Some(Where::Loopback),
            "unix" => Some(Where::Unix),
            "veth" => Some(Where::Veth(None)),
            other => other
                .strip_prefix("veth:")
                .map(|rate| rate_of(rate).map(|()| rate))
                .transpose()?
                .map(|rate| Where::Veth(Some(rate.to_owned()))),
        };
        if let Some(own) = own {
            ensure!(
                more.is_empty(),
                "--far {first}: this starts as many servers as are needed; \
                                      name it once"
            );
            return Ok(Some(own));
        }
        if let Some(wrong) = values.iter().find(|value| !value.contains("://")) {
            bail!(
                "--far: {wrong} is neither a URL nor loopback, unix, veth or veth:RATE (--far \
                 without a value comes after the names of experiments)"
            );
        }
        Ok(Some(Where::Named(values.to_vec())))
    }

    /// The servers in words, without passwords.
    pub fn text(&self) -> String {
        match self {
            Where::Named(urls) => urls.iter().map(|url| without_user(url)).collect::<Vec<_>>().join(", "),
            Where::Loopback => "servers that the lab starts on loopback".into(),
            Where::Unix => "servers that the lab starts on Unix sockets".into(),
            Where::Veth(None) => "servers that the lab starts in network namespaces".into(),
            Where::Veth(Some(rate)) => {
                format!(
                    "servers that the lab starts in network namespaces, {rate} in each \
                         direction and for each server"
                )
            }
        }
    }
}

/// Whether this is a rate in tc's notation: 1gbit, 100mbit.
fn rate_of(rate: &str) -> anyhow::Result<()> {
    let digits = rate.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = &rate[digits.len()..];
    let right = digits.parse::<u32>().is_ok_and(|number| number > 0) && ["mbit", "gbit"].contains(&unit);
    ensure!(right, "--far veth:{rate}: a rate is written 100mbit or 1gbit");
    Ok(())
}

fn without_user(url: &str) -> String {
    match url.split_once("://").map(|(scheme, rest)| (scheme, rest.rsplit_once('@'))) {
        Some((scheme, Some((_, rest)))) => format!("{scheme}://{rest}"),
        _ => url.to_owned(),
    }
}

/// Adds an option to a URL.
pub fn with_option(url: &str, option: &str) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}{option}")
}

/// Bytes of an experiment's data that each of `count` servers stores.
///
/// # Errors
/// A term cannot be calculated.
pub fn part(
    experiment: &Experiment,
    cell: &Cell,
    sizes: &BTreeMap<String, u64>,
    count: usize,
) -> anyhow::Result<u64> {
    let disk = experiment.term("cost.disk", &experiment.cost.disk, cell, sizes)?;
    let data = sizes.get("data").copied().unwrap_or(0);
    Ok(disk.max(data + data / 4) / count.max(1) as u64 + ROOM)
}

/// The servers. Servers that the lab has started end on drop.
pub struct Far {
    urls: Vec<String>,
    /// The servers in words.
    pub text: String,
    children: Vec<Child>,
    made: Vec<Undo>,
}

impl Far {
    /// Starts `count` servers, each for `bytes` bytes of blocks. Servers that the user names run
    /// already.
    ///
    /// # Errors
    /// A server does not start, or memory is short.
    pub fn up(site: &Site, place: &Where, count: usize, bytes: u64) -> anyhow::Result<Far> {
        let mut far = Far { urls: Vec::new(), text: place.text(), children: Vec::new(), made: Vec::new() };
        if let Where::Named(urls) = place {
            far.urls.clone_from(urls);
            return Ok(far);
        }
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let free = crate::ground::runner::fields(&memory).get("MemAvailable").copied().unwrap_or(u64::MAX);
        ensure!(bytes + ROOM < free, "--far: {} of memory needed, {} free", Size(bytes + ROOM), Size(free));
        for number in 0..count.max(1) {
            far.start(site, place, number, bytes).with_context(|| format!("--far: {}", place.text()))?;
        }
        Ok(far)
    }

    /// The URLs of the first `count` servers.
    ///
    /// # Errors
    /// There are fewer. The text follows the contender's name.
    pub fn urls(&self, count: usize) -> Result<&[String], String> {
        let needs = || format!("it needs {count} far stores, but --far names {}", self.urls.len());
        self.urls.get(..count.max(1)).ok_or_else(needs)
    }

    fn start(&mut self, site: &Site, place: &Where, number: usize, bytes: u64) -> anyhow::Result<()> {
        let terapage = terapage_program(&site.program()).map_err(anyhow::Error::msg)?;
        let memory = bytes + bytes / 4 + ROOM;
        let mut words: Vec<String> = vec![terapage.display().to_string()];
        words.extend(["far", "serve", "--memory", &memory.to_string()].map(str::to_owned));
        let mut files = Vec::new();
        let answers: Box<dyn Fn() -> bool> = match place {
            Where::Unix => {
                let path = site.path(&format!("far{number}.socket"));
                words.extend(["--port", "0", "--unix", &path.display().to_string()].map(str::to_owned));
                self.urls.push(format!("valkey+unix://{}", path.display()));
                files.push(path.clone());
                Box::new(move || UnixStream::connect(&path).is_ok())
            }
            Where::Veth(rate) => {
                let namespace = format!("tplab{}-{number}", process::id());
                let server = self.link(site, &namespace, number, rate.as_deref())?;
                let word = site.path(&format!("far{number}.word"));
                let secret = secret()?;
                write_secret(&word, &secret)?;
                files.push(word.clone());
                words.extend(
                    ["--bind", &server, "--password-file", &word.display().to_string()].map(str::to_owned),
                );
                let enter = ["ip", "netns", "exec", &namespace].map(str::to_owned);
                words.splice(0..0, enter);
                self.urls.push(format!("valkey://:{secret}@{server}:6379"));
                Box::new(move || TcpStream::connect((server.as_str(), 6379)).is_ok())
            }
            Where::Loopback | Where::Named(_) => {
                let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
                words.extend(["--port", &port.to_string()].map(str::to_owned));
                self.urls.push(format!("valkey://127.0.0.1:{port}"));
                Box::new(move || TcpStream::connect(("127.0.0.1", port)).is_ok())
            }
        };
        for file in files {
            self.made.push(Undo::tell(&site.janitor, Thing::File(file))?);
        }
        // The server's output: an error shows the last line.
        let said = tempfile::tempfile()?;
        let parent = process::id();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).process_group(0).stdin(Stdio::null());
        command.stdout(said.try_clone()?).stderr(said.try_clone()?).current_dir(env::temp_dir());
        // SAFETY: between fork and exec there are only system calls: no allocation, no lock.
        unsafe {
            command.pre_exec(move || {
                // If the lab dies, the kernel kills the server.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                match libc::getppid() as u32 == parent {
                    true => Ok(()),
                    false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
                }
            });
        }
        let mut child = command.spawn().with_context(|| words[0].clone())?;
        let group = Undo::tell(&site.janitor, Thing::Group(child.id() as i32));
        let begun = Instant::now();
        let up = loop {
            if answers() {
                break true;
            }
            if child.try_wait()?.is_some() || begun.elapsed() > START || site.stop.check().is_err() {
                break false;
            }
            thread::sleep(Duration::from_millis(20));
        };
        self.children.push(child);
        self.made.push(group?);
        ensure!(up, "the server does not start: {}", last_line(said));
        Ok(())
    }

    /// Makes a network namespace at the other end of a pair of virtual network cards. Returns its
    /// address.
    fn link(
        &mut self,
        site: &Site,
        namespace: &str,
        number: usize,
        rate: Option<&str>,
    ) -> anyhow::Result<String> {
        // From the addresses for benchmarks of networks (RFC 2544).
        let subnet = process::id() % 60 * 4;
        let at = |end: u32| format!("198.18.{}.{}", subnet + number as u32 % 4, end);
        let (host, server) = (at(1), at(2));
        self.made.push(Undo::tell(&site.janitor, Thing::Namespace(namespace.into()))?);
        let card = format!("tpl{}-{number}", process::id());
        run(&["ip", "netns", "add", namespace])?;
        run(&["ip", "link", "add", &card, "type", "veth", "peer", "name", "far", "netns", namespace])?;
        run(&["ip", "addr", "add", &format!("{host}/30"), "dev", &card])?;
        run(&["ip", "link", "set", &card, "up"])?;
        let inside = |words: &[&str]| run(&[&["ip", "-n", namespace], words].concat());
        inside(&["addr", "add", &format!("{server}/30"), "dev", "far"])?;
        inside(&["link", "set", "far", "up"])?;
        inside(&["link", "set", "lo", "up"])?;
        if let Some(rate) = rate {
            let limit = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"];
            run(&[&["tc", "qdisc", "add", "dev", &card], &limit[..]].concat())?;
            run(&[&["tc", "-n", namespace, "qdisc", "add", "dev", "far"], &limit[..]].concat())?;
        }
        Ok(server)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        for child in &mut self.children {
            // If the process has already ended, killing it fails, which is harmless.
            let _ = child.kill();
            let _ = child.wait();
        }
        undo::all(&mut self.made);
    }
}

/// A password for one site.
fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn write_secret(path: &PathBuf, secret: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    Ok(io::Write::write_all(&mut file.with_context(|| path.display().to_string())?, secret.as_bytes())?)
}

/// The last line of a program's output.
fn last_line(mut said: fs::File) -> String {
    let mut text = String::new();
    let read = io::Seek::rewind(&mut said).and_then(|()| io::Read::read_to_string(&mut said, &mut text));
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    read.ok().and(last).unwrap_or("it says nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Where, with_option};

    fn parse(values: &[&str]) -> Result<Option<Where>, String> {
        Where::parse(&values.iter().map(|&value| value.to_owned()).collect::<Vec<_>>())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn servers_are_the_labs_own_or_named() {
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&["loopback"]), Ok(Some(Where::Loopback)));
        assert_eq!(parse(&["unix"]), Ok(Some(Where::Unix)));
        assert_eq!(parse(&["veth"]), Ok(Some(Where::Veth(None))));
        assert_eq!(parse(&["veth:1gbit"]), Ok(Some(Where::Veth(Some("1gbit".into())))));
        let both = ["valkey://:word@a", "valkey://b"];
        let named = parse(&both).expect("URLs").expect("a place");
        assert_eq!(named.text(), "valkey://a, valkey://b");
    }

    #[test]
    fn what_is_no_server_is_refused_in_one_line() {
        for values in [&["scan"][..], &["veth:fast"], &["veth:0gbit"], &["loopback", "unix"]] {
            let error = parse(values).expect_err("it is none");
            assert!(error.starts_with("--far") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn options_are_appended() {
        assert_eq!(with_option("valkey://a", "limit=1"), "valkey://a?limit=1");
        assert_eq!(with_option("valkey://a?db=3", "limit=1"), "valkey://a?db=3&limit=1");
    }
}
