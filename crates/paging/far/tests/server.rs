//! The store against a real server: `valkey-server` or `redis-server`, whichever is installed
//! (`TERAPAGE_TEST_SERVER` names another).

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use terapage_far::{Client, Far, Reply, Server};
use terapage_store::{Ended, Failure, Op, OpKind, Store, StoreRing};
use terapage_sys::memory;
use terapage_sys::ring::{IoEngine, Piece, Ring};

const BLOCK: usize = 64 << 10;

/// A server for one test, on a socket in a temporary directory.
struct Running {
    process: Child,
    place: tempfile::TempDir,
}

impl Running {
    fn start(more: &[&str]) -> Option<Running> {
        let place = tempfile::tempdir().unwrap();
        let named = std::env::var("TERAPAGE_TEST_SERVER").ok();
        let names = named.iter().map(String::as_str).chain(["valkey-server", "redis-server"]);
        for name in names {
            let process = Command::new(name)
                .args(["--port", "0", "--save", "", "--daemonize", "no", "--unixsocket"])
                .arg(place.path().join("s"))
                .arg("--dir")
                .arg(place.path())
                .args(more)
                .stdout(Stdio::null())
                .spawn();
            if let Ok(process) = process {
                let running = Running { process, place };
                let until = Instant::now() + Duration::from_secs(120);
                while running.client().is_none() {
                    assert!(Instant::now() < until, "the server does not come up");
                    std::thread::sleep(Duration::from_millis(20));
                }
                return Some(running);
            }
        }
        eprintln!("SKIPPED: neither valkey-server nor redis-server");
        None
    }

    fn server(&self, options: &str) -> Server {
        Server::parse(&format!("valkey+unix://{}{options}", self.place.path().join("s").display())).unwrap()
    }

    fn client(&self) -> Option<Client> {
        Client::connect(&self.server(""), Duration::from_secs(10)).ok()
    }

    fn call(&self, words: &[&str]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.client().unwrap().call(&words).unwrap()
    }

    fn stop(&self, signal: &str) {
        Command::new("kill").arg(signal).arg(self.process.id().to_string()).status().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A store, a ring and memory of two extents.
struct Rig {
    store: Far,
    ring: Ring,
    at: usize,
}

const MEMORY: usize = 64 * BLOCK;

impl Rig {
    fn new(server: Server) -> Rig {
        let mut rig = Rig {
            store: Far::new(server, BLOCK).unwrap(),
            ring: Ring::with(IoEngine::of_tests(), 64, true).unwrap(),
            at: memory::reserve(MEMORY).unwrap() as usize,
        };
        rig.store.open(&mut StoreRing::new(&mut rig.ring, 0, 48), &mut Vec::new());
        while rig.store.slots() < 256 {
            rig.store.grow().unwrap();
        }
        rig
    }

    fn memory(&mut self) -> &mut [u8] {
        // SAFETY: mapped in `new`, never freed, and used only by this rig.
        unsafe { memory::bytes(self.at, MEMORY) }
    }

    /// Runs operations at once: kind, slot, count, and the place in the memory, in blocks.
    fn operate(&mut self, all: &[(OpKind, u32, u32, usize)]) -> Vec<Result<(), Failure>> {
        let pieces: Vec<Vec<Piece>> = all
            .iter()
            .map(|&(_, _, count, at)| {
                (at..at + count as usize).map(|block| Piece::new(self.at + block * BLOCK, BLOCK)).collect()
            })
            .collect();
        let mut ended: Vec<Ended> = Vec::new();
        for (id, (&(kind, slot, ..), pieces)) in all.iter().zip(&pieces).enumerate() {
            let op = Op { id: id as u32, kind, slot, pieces, urgent: slot % 2 == 0 };
            // SAFETY: the pieces and their memory stay until the completions have come, below.
            unsafe { self.store.begin(&mut StoreRing::new(&mut self.ring, 0, 48), op, &mut ended) };
        }
        loop {
            // Waits even if all operations have ended, because connections are being made.
            self.ring.enter(u32::from(ended.len() < all.len())).unwrap();
            while let Some(done) = self.ring.done() {
                self.store.event(&mut StoreRing::new(&mut self.ring, 0, 48), done, &mut ended);
            }
            if ended.len() == all.len() {
                break;
            }
        }
        ended.sort_by_key(|end| end.id);
        ended.into_iter().map(|end| end.result).collect()
    }

    /// Lets the store work until `is_so`.
    fn go_on_until(&mut self, is_so: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(300);
        while !is_so() {
            assert!(Instant::now() < until, "it does not come to that");
            self.ring.enter(0).unwrap();
            while let Some(done) = self.ring.done() {
                self.store.event(&mut StoreRing::new(&mut self.ring, 0, 48), done, &mut Vec::new());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn write(&mut self, slot: u32, byte: u8) -> Result<(), Failure> {
        self.memory()[..BLOCK].fill(byte);
        self.operate(&[(OpKind::Write, slot, 1, 0)]).remove(0)
    }

    /// The byte that the slot is full of.
    fn read(&mut self, slot: u32) -> Result<u8, Failure> {
        self.memory()[..BLOCK].fill(0xee);
        self.operate(&[(OpKind::Read, slot, 1, 0)]).remove(0)?;
        let bytes = &self.memory()[..BLOCK];
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a block of several");
        Ok(bytes[0])
    }
}

fn why(result: Result<impl std::fmt::Debug, Failure>) -> String {
    result.unwrap_err().why.to_string()
}

#[test]
fn blocks_come_back_as_they_were_written_whatever_happens_to_connections() {
    let Some(running) = Running::start(&[]) else { return };
    // On a busy machine, many connections end before a round does.
    let mut rig = Rig::new(running.server("?stall=120s"));
    let seed = std::env::var("TERAPAGE_SEED").ok().and_then(|text| text.parse().ok());
    let mut state: u64 = seed.unwrap_or_else(|| std::process::id().into());
    println!("TERAPAGE_SEED={state}");
    let mut random = move |most: u32| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u32 % most
    };
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let killer = std::thread::spawn({
        let (stop, rounds, mut client) = (stop.clone(), rounds.clone(), running.client().unwrap());
        move || {
            let (mut before, mut pause_ms) = (0, 7);
            while !stop.load(SeqCst) {
                client.within(Duration::from_secs(60));
                client.call(&[b"CLIENT", b"KILL", b"TYPE", b"normal", b"SKIPME", b"yes"]).unwrap();
                std::thread::sleep(Duration::from_millis(pause_ms));
                // On a busy machine the operations of a round need longer.
                let now = rounds.load(SeqCst);
                pause_ms = if now == before { (pause_ms * 2).min(2000) } else { 7 };
                before = now;
            }
        }
    });
    let mut model = vec![0_u8; 256];
    let mut version = 0_u8;
    for _ in 0..300 {
        // Some operations on different slots, with neighbours in one of them.
        let (mut all, mut at, mut slot) = (Vec::new(), 0, random(8));
        while slot < 250 && at < 60 {
            let count = 1 + random(4.min(61 - at as u32));
            let is_new = model[slot as usize..(slot + count) as usize].contains(&0);
            let kind = if is_new || random(2) == 0 { OpKind::Write } else { OpKind::Read };
            for offset in 0..count as usize {
                if kind == OpKind::Write {
                    version = version % 255 + 1;
                    model[slot as usize + offset] = version;
                }
                let byte = if kind == OpKind::Write { version } else { 0 };
                rig.memory()[(at + offset) * BLOCK..(at + offset + 1) * BLOCK].fill(byte);
            }
            all.push((kind, slot, count, at));
            (slot, at) = (slot + count + random(40), at + count as usize);
        }
        for result in rig.operate(&all) {
            result.unwrap();
        }
        rounds.fetch_add(1, SeqCst);
        for &(kind, slot, count, at) in &all {
            for offset in 0..count as usize {
                let expected = model[slot as usize + offset];
                let bytes = &rig.memory()[(at + offset) * BLOCK..(at + offset + 1) * BLOCK];
                assert!(bytes.iter().all(|&byte| byte == expected), "{kind:?} of slot {slot} + {offset}");
            }
        }
    }
    stop.store(true, SeqCst);
    killer.join().unwrap();
    for (slot, &expected) in model.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        assert_eq!(rig.read(slot as u32).unwrap(), expected);
    }
    rig.store.close();
    assert_eq!(running.call(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn a_server_that_has_lost_its_keys_is_found_out() {
    let Some(running) = Running::start(&[]) else { return };
    let mut rig = Rig::new(running.server(""));
    rig.write(0, 1).unwrap();
    rig.write(1, 2).unwrap();
    running.call(&["FLUSHALL"]);
    assert!(why(rig.read(0)).contains("is gone"));
    // A write continues, and does not restore the bytes beside it.
    rig.write(1, 3).unwrap();
    assert_eq!(rig.read(1).unwrap(), 3);
    assert!(why(rig.read(0)).contains("was gone"));
    assert!(rig.store.condition().is_some());
}

#[test]
fn a_server_that_was_started_again_has_lost_all() {
    let Some(mut running) = Running::start(&[]) else { return };
    let mut rig = Rig::new(running.server("?stall=20s"));
    rig.write(0, 1).unwrap();
    rig.write(40, 2).unwrap();
    running.process.kill().unwrap();
    running.process.wait().unwrap();
    let again = Running::start(&[]).unwrap();
    let (old, new) = (running.place.path().join("s"), again.place.path().join("s"));
    std::fs::remove_file(&old).ok();
    std::os::unix::fs::symlink(new, old).unwrap();
    assert!(why(rig.read(0)).contains("started again"));
    rig.write(40, 3).unwrap();
    assert_eq!(rig.read(40).unwrap(), 3);
    assert!(why(rig.read(0)).contains("started again"));
}

#[test]
fn a_server_that_stands_still_is_waited_for_and_no_longer_than_said() {
    let Some(running) = Running::start(&[]) else { return };
    let mut rig = Rig::new(running.server("?stall=8s"));
    rig.write(0, 1).unwrap();
    running.stop("-STOP");
    let go_on = std::thread::spawn({
        let id = running.process.id().to_string();
        move || {
            std::thread::sleep(Duration::from_millis(1500));
            Command::new("kill").args(["-CONT", &id]).status().unwrap();
        }
    });
    // An operation whose error may pass is tried again, as the pager does.
    let insist = |rig: &mut Rig, value| {
        let mut last = rig.write(1, value);
        while last.as_ref().is_err_and(|failure| failure.passing) {
            std::thread::sleep(Duration::from_millis(100));
            last = rig.write(1, value);
        }
        last
    };
    insist(&mut rig, 2).unwrap();
    assert_eq!(rig.read(0).unwrap(), 1);
    go_on.join().unwrap();
    running.stop("-STOP");
    let said = why(insist(&mut rig, 3));
    assert!(said.contains("nothing was done for 8 s"), "{said}");
    running.stop("-CONT");
    while rig.write(1, 4).is_err() {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!((rig.read(0).unwrap(), rig.read(1).unwrap()), (1, 4));
}

#[test]
fn without_the_right_to_end_connections_nothing_is_written_after_one_was_cut() {
    let Some(running) = Running::start(&[]) else { return };
    let user = "ACL SETUSER u on >p ~* +@all -client|kill";
    running.call(&user.split(' ').collect::<Vec<_>>());
    let server = running.server("");
    let mut rig = Rig::new(Server { user: Some("u".into()), password: Some(b"p".to_vec().into()), ..server });
    rig.write(0, 1).unwrap();
    running.stop("-STOP");
    let other = std::thread::spawn({
        let (id, server) = (running.process.id().to_string(), running.server(""));
        move || {
            std::thread::sleep(Duration::from_millis(7000));
            Command::new("kill").args(["-CONT", &id]).status().unwrap();
            Client::connect(&server, Duration::from_secs(5)).unwrap();
        }
    });
    // The connection is cut after five seconds without an answer.
    let mut last = rig.write(1, 2);
    while last.as_ref().is_err_and(|failure| failure.passing) {
        std::thread::sleep(Duration::from_millis(100));
        last = rig.write(1, 2);
    }
    other.join().unwrap();
    let said = why(last);
    assert!(said.contains("NOPERM"), "{said}");
    assert!(why(rig.write(0, 3)).contains("NOPERM"));
    assert_eq!(rig.read(0).unwrap(), 1);
}

#[test]
fn a_full_server_says_so() {
    let Some(running) = Running::start(&["--maxmemory", "40mb"]) else { return };
    let mut rig = Rig::new(running.server("?stall=1s"));
    rig.write(0, 1).unwrap();
    running.call(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let said = why(rig.write(40, 2));
    assert!(said.contains("full") && said.contains("OOM"), "{said}");
    running.call(&["CONFIG", "SET", "maxmemory", "40mb"]);
    assert_eq!(rig.read(0).unwrap(), 1);
    while let Ok(()) = rig.store.grow() {
        assert!(rig.store.slots() < 1000, "it grows without end");
    }
}

#[test]
fn slots_that_are_free_are_given_back() {
    let Some(running) = Running::start(&[]) else { return };
    let mut rig = Rig::new(running.server(""));
    for slot in [0, 1, 40] {
        rig.write(slot, 7).unwrap();
    }
    let keys = |running: &Running| running.call(&["DBSIZE"]);
    assert_eq!(keys(&running), Reply::Integer(4));
    rig.store.forget(0..2);
    assert_eq!(rig.read(40).unwrap(), 7);
    rig.write(41, 8).unwrap();
    assert_eq!(keys(&running), Reply::Integer(3));
    rig.write(0, 9).unwrap();
    assert_eq!((rig.read(0).unwrap(), rig.read(40).unwrap()), (9, 7));
    rig.store.close();
    assert_eq!(keys(&running), Reply::Integer(0));
}

#[test]
fn a_pager_that_is_idle_removes_what_dead_ones_have_left_and_nothing_else() {
    let Some(running) = Running::start(&[]) else { return };
    let keys = |running: &Running| running.call(&["DBSIZE"]);
    // One holder that gives no sign of life, and one whose process has ended.
    let mut silent = Rig::new(running.server(""));
    silent.write(0, 1).unwrap();
    silent.write(40, 2).unwrap();
    let mut gone = Rig::new(running.server(""));
    gone.write(0, 3).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let registry = String::from_utf8(gone.store.namespace().registry()).unwrap();
    let holder = format!("h:{}", gone.store.namespace().name());
    let field = format!("{}/{} {} 1", boot.trim(), space.display(), std::process::id());
    running.call(&["HSET", &registry, &holder, &field, "beat", "99999999999"]);
    // The process of this holder lives, and gives signs of life.
    let mut living = Rig::new(running.server(""));
    living.write(0, 4).unwrap();
    let registry = String::from_utf8(living.store.namespace().registry()).unwrap();
    running.call(&["HSET", &registry, "beat", "99999999999"]);
    let mut idle = Rig::new(running.server("?grace=2s"));
    idle.write(0, 5).unwrap();
    assert_eq!(keys(&running), Reply::Integer(3 + 2 + 2 + 2 + 1));
    idle.go_on_until(|| keys(&running) == Reply::Integer(2 + 2 + 1));
    assert_eq!((living.read(0).unwrap(), idle.read(0).unwrap()), (4, 5));
    living.store.close();
    idle.store.close();
    assert_eq!(keys(&running), Reply::Integer(0));
}
