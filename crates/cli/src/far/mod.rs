//! `terapage far`: memory of other machines, on Valkey servers.

#[cfg(feature = "cert")]
mod cert;

use crate::{complain, print, program};
use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use std::ffi::OsString;
use std::fmt::Write;
use std::io::{Seek, Write as _};
use std::net::IpAddr;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use terapage_config::{Settings, Size};
use terapage_far::{Address, Listed, Server};

/// The servers that this command can start, the better one first.
const SERVERS: [&str; 2] = ["valkey-server", "redis-server"];

/// The files of the CA and of the server, in the directory of `far cert` and `--tls-dir`.
pub const CA: &str = "ca.crt";
/// The server's certificate.
pub const SERVER: &str = "server.crt";
/// The key of the server's certificate.
pub const SERVER_KEY: &str = "server.key";

/// Descriptors of passwords begin here, where programs do not look.
const HIGH: i32 = 700;

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Give memory of this machine to others: start a Valkey server with the settings that it
    /// needs.
    Serve(Serve),
    #[cfg(feature = "cert")]
    /// Make certificates, by which servers and clients know each other (TLS).
    Cert(cert::Cert),
    /// Show which processes keep blocks on a server.
    Ls(Ls),
    /// Remove blocks of processes that ended without removing them.
    Sweep(Sweep),
    /// Ask programs to move their blocks from a server to their spares.
    Drain(Drain),
}

impl Command {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Serve(serve) => serve.run(),
            #[cfg(feature = "cert")]
            Command::Cert(cert) => cert.run(),
            Command::Ls(ls) => ls.run(),
            Command::Sweep(sweep) => sweep.run(),
            Command::Drain(drain) => drain.run(),
        }
    }
}

/// The arguments of `terapage far serve`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage far serve --memory 64G --bind 10.0.0.7 --password-file /etc/terapage/password
  terapage far serve --memory 64G --tls-dir /etc/terapage/tls
  terapage far serve --memory 8G --unix /run/far.sock
  terapage far serve --memory 64G -- --tcp-backlog 1024

This command becomes the server, and ends when the server ends. The server keeps all blocks in memory,
and refuses blocks for which it has no room. Without --password-file or --tls-dir it listens only on
this machine, since every client could read the blocks of all programs. With --tls-dir only clients
with a certificate by the same CA can connect (terapage far cert makes such certificates).")]
pub struct Serve {
    /// Memory to give, as in 64G; a tenth of it stays free
    #[arg(short, long, value_name = "SIZE")]
    memory: String,
    /// The port to listen on, or 0 for none
    #[arg(short, long, default_value_t = 6379)]
    port: u16,
    /// The address to listen on; repeat it for several
    #[arg(short, long, value_name = "ADDRESS")]
    bind: Vec<IpAddr>,
    /// Listen on this socket as well
    #[arg(short, long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// The file with the password that clients must give
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Speak only TLS, with ca.crt, server.crt and server.key in this directory, and only to
    /// clients with a certificate of that CA
    #[arg(long, value_name = "DIR")]
    tls_dir: Option<PathBuf>,
    /// The server's program, instead of valkey-server or redis-server
    #[arg(long, value_name = "PROGRAM")]
    server: Option<OsString>,
    /// Further options of the server's program
    #[arg(last = true, value_name = "OPTIONS")]
    more: Vec<OsString>,
}

/// Further options of the server: blocks are only in memory, are never evicted, and idle clients
/// stay connected.
const FIXED: [(&str, &str); 10] = [
    ("maxmemory-policy", "noeviction"),
    ("save", ""),
    ("appendonly", "no"),
    ("timeout", "0"),
    ("tcp-keepalive", "60"),
    ("tcp-backlog", "511"),
    ("lazyfree-lazy-user-del", "yes"),
    ("activedefrag", "no"),
    ("daemonize", "no"),
    ("stop-writes-on-bgsave-error", "no"),
];

impl Serve {
    fn run(self) -> anyhow::Result<ExitCode> {
        let memory: Size = self.memory.parse().map_err(|error| anyhow!("--memory: {error}"))?;
        let all = terapage_config::memory_bytes().map(Size);
        if let Some(all) = all.filter(|&all| memory > all) {
            bail!("--memory: {memory} is more than this machine's {all}");
        }
        if memory.0 < 64 << 20 {
            bail!("--memory: {memory} is too little (at least 64M)");
        }
        for option in &self.more {
            let option = option.to_string_lossy();
            if let Some(name) = option.strip_prefix("--")
                && (FIXED.iter().any(|(fixed, _)| *fixed == name) || name == "maxmemory")
            {
                bail!(
                    "--{name}: with it the server would lose blocks, or this command sets it \
                       (leave it out)"
                );
            }
        }
        let path = self.find()?;
        let tls = self.tls_dir.as_deref().map(tls_options).transpose()?;
        if let Some(options) = &tls {
            try_tls(&path, options)?;
        }
        let mut command = std::process::Command::new(&path);
        command.args(self.arguments(memory, tls)?).args(&self.more);
        let error = command.exec();
        bail!("{} cannot be executed: {error}", path.display())
    }

    fn find(&self) -> anyhow::Result<PathBuf> {
        let path = || std::env::var_os("PATH");
        if let Some(server) = &self.server {
            return program::find(server, path())
                .map_err(|_| anyhow!("--server: {} is not found, or not executable", server.display()));
        }
        let found = SERVERS.iter().find_map(|name| program::find(name.as_ref(), path()).ok());
        found.context("neither valkey-server nor redis-server is found (install the package valkey-server)")
    }

    fn arguments(&self, memory: Size, tls: Option<Vec<OsString>>) -> anyhow::Result<Vec<OsString>> {
        let mut words: Vec<OsString> = Vec::new();
        let config = self.password_file.as_deref().map(config_of_password).transpose()?;
        words.extend(config.map(Into::into));
        let mut add = |name: &str, value: &str| {
            words.push(format!("--{name}").into());
            words.push(value.into());
        };
        add("maxmemory", &memory.0.to_string());
        FIXED.iter().for_each(|(name, value)| add(name, value));
        match tls {
            None => add("port", &self.port.to_string()),
            Some(_) => {
                add("port", "0");
                add("tls-port", &self.port.to_string());
            }
        }
        // Unless one of the server's own options lets others connect.
        let opens = |option: &OsString| option.to_string_lossy().starts_with("--tls-auth-clients");
        let knows_clients = tls.is_some() && !self.more.iter().any(opens);
        let is_guarded = self.password_file.is_some() || knows_clients;
        match &self.bind[..] {
            [] if is_guarded => add("bind", "* -::*"),
            [] => add("bind", "127.0.0.1 -::1"),
            all => {
                if !is_guarded && !all.iter().all(IpAddr::is_loopback) {
                    bail!(
                        "--bind: others could read all blocks (give a --password-file or a \
                           --tls-dir)"
                    );
                }
                let all: Vec<String> = all.iter().map(IpAddr::to_string).collect();
                add("bind", &all.join(" "));
            }
        }
        if is_guarded {
            add("protected-mode", "no");
        }
        if let Some(socket) = &self.unix {
            add("unixsocket", socket.to_str().context("--unix: the path is not UTF-8")?);
            add("unixsocketperm", "700");
        }
        words.extend(tls.into_iter().flatten());
        Ok(words)
    }
}

/// The server's options for its certificates.
fn tls_options(dir: &Path) -> anyhow::Result<Vec<OsString>> {
    let dir = std::path::absolute(dir)?;
    let files = [("--tls-cert-file", SERVER), ("--tls-key-file", SERVER_KEY), ("--tls-ca-cert-file", CA)];
    let mut options: Vec<OsString> = vec!["--tls-auth-clients".into(), "yes".into()];
    for (option, file) in files {
        let path = dir.join(file);
        if let Err(error) = std::fs::File::open(&path) {
            bail!("--tls-dir: {}: {error} (terapage far cert makes it)", path.display());
        }
        options.extend([option.into(), path.into()]);
    }
    Ok(options)
}

/// The time in which a server must start.
const START: Duration = Duration::from_secs(10);

/// Starts the server for a moment, at another port, to see whether it accepts the TLS options.
fn try_tls(program: &Path, options: &[OsString]) -> anyhow::Result<()> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    // SAFETY: the descriptor was made just now, and has no other owner.
    let mut said = unsafe { std::fs::File::from_raw_fd(in_memory(b"")?) };
    let tls_port = port.to_string();
    let fixed = ["--port", "0", "--bind", "127.0.0.1", "--save", "", "--tls-port", &*tls_port];
    let mut child = std::process::Command::new(program)
        .args(fixed)
        .args(options)
        .stdin(std::process::Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(said.try_clone()?)
        .spawn()
        .with_context(|| format!("{} cannot be executed", program.display()))?;
    let until = std::time::Instant::now() + START;
    let ended = loop {
        if child.try_wait()?.is_some() {
            break true;
        }
        let listens = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        if listens || std::time::Instant::now() > until {
            child.kill().ok();
            child.wait().ok();
            break false;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if !ended {
        return Ok(());
    }
    let mut text = String::new();
    said.rewind()?;
    std::io::Read::read_to_string(&mut said, &mut text).ok();
    Err(why_no_tls(program, &text))
}

/// What a server said before it ended, in one line.
fn why_no_tls(program: &Path, text: &str) -> anyhow::Error {
    let program = program.display();
    let has_none = ["Failed finding TLS", "Missing implement of connection", "Bad directive"];
    if has_none.iter().any(|words| text.contains(words)) {
        return anyhow!("--tls-dir: {program} was built without TLS (name another: --server)");
    }
    // The part of a line of the server's log after the number, the time and a sign.
    let message = |line: &str| line.split_once(" # ").map_or(line, |(_, rest)| rest).trim().to_owned();
    let lines: Vec<String> = text.lines().map(message).filter(|line| !line.is_empty()).collect();
    let line = lines.iter().find(|line| line.contains("Failed to load")).or(lines.last());
    anyhow!("--tls-dir: {program} reports: {}", line.map_or("nothing", |line| line))
}

/// A configuration file in memory that sets the password: everybody could read it on the command
/// line.
fn config_of_password(file: &Path) -> anyhow::Result<String> {
    let mode = file.metadata().with_context(|| format!("--password-file: {}", file.display()))?.permissions();
    if mode.mode() & 0o077 != 0 {
        bail!("--password-file: others can read {} (chmod 600)", file.display());
    }
    let secret = terapage_far::Secret::read(file)
        .map_err(|why| anyhow!("--password-file: {} {why}", file.display()))?;
    let fits = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    if !secret.bytes().iter().all(fits) {
        bail!("--password-file: a password has letters, digits and signs, but no space, quote or backslash");
    }
    let mut text = b"requirepass ".to_vec();
    text.extend_from_slice(secret.bytes());
    text.push(b'\n');
    Ok(format!("/proc/self/fd/{}", in_memory(&text)?))
}

/// Makes a file in memory that stays open over exec, and is read from its beginning. Returns its
/// number.
fn in_memory(text: &[u8]) -> anyhow::Result<i32> {
    // SAFETY: the name ends in a zero byte.
    let low = unsafe { libc::memfd_create(c"terapage-secret".as_ptr(), 0) };
    if low < 0 {
        bail!("memfd_create: {}", std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now, and has no other owner.
    let mut file = unsafe { std::fs::File::from_raw_fd(low) };
    file.write_all(text)?;
    file.rewind()?;
    for least in [HIGH, 64, 3] {
        // SAFETY: fcntl with F_DUPFD touches no memory.
        let high = unsafe { libc::fcntl(low, libc::F_DUPFD, least) };
        if high >= 0 {
            return Ok(high);
        }
    }
    Ok(file.into_raw_fd())
}

/// Settings for the program's process: with the addresses of hosts, because names cannot be looked
/// up there, and with passwords in files that only this process has, not in its environment.
pub fn hand_over(settings: Settings) -> anyhow::Result<Settings> {
    terapage_far::take_warnings().iter().for_each(|line| complain(&format!("warning: {line}")));
    let mut map = |url: &str| -> anyhow::Result<String> {
        let mut server = Server::parse(url).map_err(|why| anyhow!("--store: {why}"))?;
        if !settings.verify && terapage_far::is_replicated(url) {
            bail!(
                "TERAPAGE_VERIFY=0: {} has replicas, which may return older bytes when they take over, \
                 and without checks this would not be found",
                server.shown()
            );
        }
        // The server's name as given decides whether the server gets ciphertext, so this comes
        // before the name is changed.
        server.encrypt = Some(server.wants_cipher(settings.encrypt.is_none()));
        with_numbers(&mut server).with_context(|| format!("--store: {}", server.shown()))?;
        if let Some(password) = &server.password {
            server.secret = Some(in_memory(password.bytes())?);
        }
        for file in [&mut server.files.ca, &mut server.files.cert, &mut server.files.key] {
            // It is read again later, wherever the program is by then.
            *file = file.take().map(std::path::absolute).transpose()?;
        }
        if server.tls {
            let known = terapage_far::server(url).map_err(|why| anyhow!("--store: {why}"))?;
            if let Some(tls) = known.tls_with {
                server.handed = Some(in_memory(&tls.to_bytes())?);
            }
        }
        Ok(server.without_password())
    };
    let stores = settings.stores.clone().into_iter().map(|store| store.map_urls(&mut map));
    Ok(Settings { stores: stores.collect::<anyhow::Result<_>>()?, ..settings })
}

/// Looks the hosts up.
fn with_numbers(server: &mut Server) -> anyhow::Result<()> {
    let Address::Tcp(host, port) = &server.address else { return Ok(()) };
    if server.seeds.is_empty() {
        if server.numbers.is_empty() {
            let found = terapage_far::resolve(host, *port)?;
            server.numbers = found.iter().map(std::net::SocketAddr::ip).collect();
            server.numbers.dedup();
        }
        return Ok(());
    }
    let mut all = terapage_far::addresses(server)?.into_iter().map(|at| (at.ip().to_string(), at.port()));
    let (host, port) = all.next().context("the host has no address")?;
    server.seeds = all.collect();
    (server.address, server.numbers) = (Address::Tcp(host, port), Vec::new());
    Ok(())
}

fn server(url: &str) -> anyhow::Result<Server> {
    terapage_far::server(url).map_err(|why| anyhow!("{why}"))
}

/// A time such as `1h` or `90s`. `1h`, `90s`.
fn grace(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return Err("write a time as in 90s, 5m, 1h".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "write a time as in 90s, 5m, 1h")?;
    Ok(Duration::from_secs(number.saturating_mul(unit)))
}

/// The arguments of `terapage far ls`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage far ls valkey://far1:6379
  terapage far ls valkey://far1 --json | jq '.[] | select(.dead)'")]
pub struct Ls {
    /// The server
    #[arg(value_name = "URL")]
    url: String,
    /// A process without a sign of life for this time counts as dead
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = grace)]
    grace: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Ls {
    fn run(self) -> anyhow::Result<ExitCode> {
        let server = server(&self.url)?;
        let all =
            terapage_far::list(&server, self.grace).map_err(|error| anyhow!("{} {error}", server.shown()))?;
        print(&if self.json { as_json(&all)? } else { as_table(&all) })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn as_json(all: &[Listed]) -> anyhow::Result<String> {
    let all: Vec<_> = all
        .iter()
        .map(|one| {
            json!({
                "namespace": one.name, "host": one.host, "pid": one.pid, "started_s": one.started_s,
                "beat_age_s": one.beat_age_s, "holders": one.holders, "bytes": one.bytes, "dead": one.is_dead,
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

fn as_table(all: &[Listed]) -> String {
    let mut text = format!(
        "{:<16}  {:<20} {:>8} {:>9} {:>8} {:>9}  {}\n",
        "NAMESPACE", "HOST", "PID", "BYTES", "HOLDERS", "LAST SIGN", "STATE"
    );
    for one in all {
        let state = if one.is_dead { "dead" } else { "in use" };
        let sign = format!("{} s", one.beat_age_s);
        let size = Size(one.bytes).to_string();
        writeln!(
            text,
            "{:<16}  {:<20} {:>8} {size:>9} {:>8} {sign:>9}  {state}",
            one.name, one.host, one.pid, one.holders
        )
        .expect("a text takes it");
    }
    text
}

/// The arguments of `terapage far sweep`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage far sweep valkey://far1:6379
  terapage far sweep valkey://far1 --grace 5m --rate 2G

A process counts as dead if it has written nothing to the server for the time of --grace. A process
that ran on this machine counts as dead as soon as it has ended.")]
pub struct Sweep {
    /// The server
    #[arg(value_name = "URL")]
    url: String,
    /// A process without a sign of life for this time counts as dead
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = grace)]
    grace: Duration,
    /// The most bytes to remove in a second
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    rate: String,
}

impl Sweep {
    fn run(self) -> anyhow::Result<ExitCode> {
        let server = server(&self.url)?;
        let rate: Size = self.rate.parse().map_err(|error| anyhow!("--rate: {error}"))?;
        let removed = terapage_far::sweep(&server, self.grace, rate.0.max(1 << 20))
            .map_err(|error| anyhow!("{} {error}", server.shown()))?;
        let bytes = removed.iter().map(|one| one.bytes).sum();
        print(&format!("{} removed, {}\n", removed.len(), Size(bytes)))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Why blocks stay on a server that is to be emptied.
fn why_kept<'a>(kept: impl Iterator<Item = &'a Listed>) -> String {
    let (read, others): (Vec<&Listed>, Vec<&Listed>) = kept.partition(|one| !one.children.is_empty());
    let processes = |all: &[&Listed]| all.iter().map(|one| one.processes()).collect::<Vec<_>>().join("; ");
    let mut words = Vec::new();
    if !read.is_empty() {
        let pids = processes(&read);
        words.push(format!(
            "forked children read there until they end ({pids}: end them, and run this again)"
        ));
    }
    if !others.is_empty() {
        let pids = processes(&others);
        words.push(format!("there is no spare, or it is full ({pids}: terapage stat PID says which)"));
    }
    words.join("; ")
}

/// The arguments of `terapage far drain`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage far drain valkey://far1:6379
  terapage far drain valkey://far1:6379 --undo

Programs hear of it within ten seconds. A mirror that has a spare (spare= in the name of a server)
fills the spare, and gives up what it keeps on this server; a program with a list of servers moves
it to the others. The command ends when no running program keeps anything there. It fails if that
gets no further: a program has no spare, or forked children still read what a list kept there.")]
pub struct Drain {
    /// The server
    #[arg(value_name = "URL")]
    url: String,
    /// The server is to be used again
    #[arg(long)]
    undo: bool,
}

/// How long what is kept may stay the same before `drain` gives up, and between two looks.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);
const DRAIN_PAUSE: Duration = Duration::from_secs(1);

impl Drain {
    fn run(self) -> anyhow::Result<ExitCode> {
        let server = server(&self.url)?;
        let no = |error: terapage_far::Error| anyhow!("{} {error}", server.shown());
        terapage_far::drain(&server, !self.undo).map_err(no)?;
        if self.undo {
            return Ok(ExitCode::SUCCESS);
        }
        let (mut least, mut since) = (u64::MAX, std::time::Instant::now());
        loop {
            let all = terapage_far::list(&server, Duration::from_secs(3600)).map_err(no)?;
            let kept: Vec<u64> =
                all.iter().filter(|one| !one.is_dead && one.bytes > 0).map(|one| one.bytes).collect();
            let bytes: u64 = kept.iter().sum();
            if bytes == 0 {
                print(&format!("{} is empty: it can be stopped\n", server.shown()))?;
                return Ok(ExitCode::SUCCESS);
            }
            if bytes < least {
                (least, since) = (bytes, std::time::Instant::now());
            }
            if since.elapsed() > DRAIN_PATIENCE {
                let held = all.iter().filter(|one| !one.is_dead && one.bytes > 0);
                bail!(
                    "{}: {} of {} programs stay there: {}",
                    server.shown(),
                    Size(bytes),
                    kept.len(),
                    why_kept(held)
                );
            }
            std::thread::sleep(DRAIN_PAUSE);
        }
    }
}
