//! Each store around others, and each method of a store: what a caller asks of the outer store
//! reaches the inner one, or the table says why not.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use terapage_store::{
    Below, BelowMut, Codec, Compressed, Delayed, EXTENT, Encrypted, Ended, Error, Faults, Faulty, Mirror, Op,
    OpKind, Placement, Presence, Ram, Redundancy, Spare, Store, StoreRing, Striped, Tier, Tiered,
};
use terapage_sys::memory;
use terapage_sys::ring::{Done, IoEngine, Piece, Ring};

const BLOCK: usize = 16 << 10;
const UNIT: usize = 4 << 10;

/// What the inner stores were asked.
#[derive(Clone, Default)]
struct Log {
    asked: Arc<Mutex<Vec<&'static str>>>,
    /// How often each inner store is to tell that it has lost its first slot.
    losses: Arc<AtomicUsize>,
}

impl Log {
    fn note(&self, method: &'static str) {
        self.asked.lock().unwrap().push(method);
    }

    /// Whether `call` makes an inner store be asked for `method`.
    fn hears(&self, method: &str, call: impl FnOnce()) -> bool {
        self.asked.lock().unwrap().clear();
        call();
        self.asked.lock().unwrap().contains(&method)
    }
}

/// An inner store: it has an answer of its own to everything.
struct Spy {
    ram: Ram,
    log: Log,
    told: usize,
}

impl Store for Spy {
    fn name(&self) -> String {
        "spy".to_owned()
    }

    fn slots(&self) -> u32 {
        self.ram.slots()
    }

    fn grow(&mut self) -> Result<(), Error> {
        self.log.note("grow");
        self.ram.grow()
    }

    fn below(&self) -> Below<'_> {
        Below::Nothing
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Nothing
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        self.log.note("begin");
        // SAFETY: the promise is passed on.
        unsafe { self.ram.begin(ring, op, ended) }
    }

    fn event(&mut self, _: &mut StoreRing<'_>, done: Done, _: &mut Vec<Ended>) {
        assert_eq!(done.tag, 7, "the token of the timeout");
        self.log.note("event");
    }

    fn may_split(&self, _more: usize) -> bool {
        self.log.note("may_split");
        true
    }

    fn split(&mut self, more: usize) {
        self.log.note("split");
        self.ram.split(more);
    }

    fn joins(&self, _slot: u32) -> bool {
        true
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    fn judge(&mut self, _: &mut StoreRing<'_>, _: u32, _: Range<u32>, _: bool, _: &mut Vec<Ended>) {
        self.log.note("judge");
    }

    fn forget(&mut self, _slots: Range<u32>) {
        self.log.note("forget");
    }

    fn share(&mut self, fork: u32) -> Result<(), Error> {
        assert_eq!(fork, 5);
        self.log.note("share");
        Ok(())
    }

    fn unshare(&mut self, fork: u32) {
        assert_eq!(fork, 5);
        self.log.note("unshare");
    }

    fn leaving(&mut self, ring: &mut StoreRing<'_>, leaves: bool) -> bool {
        assert!(leaves);
        // The event must find the way back, through all views of the ring.
        ring.timeout(1, 7).unwrap();
        self.log.note("leaving");
        false
    }

    fn inherit(&mut self) -> Result<(), Error> {
        self.log.note("inherit");
        Ok(())
    }

    fn open(&mut self, ring: &mut StoreRing<'_>, _: &mut Vec<Ended>) {
        ring.timeout(1, 7).unwrap();
        self.log.note("open");
    }

    fn close(&mut self) {
        self.log.note("close");
    }

    fn condition(&self) -> Option<String> {
        Some("the spy is cold".to_owned())
    }

    fn redundancy(&self) -> Redundancy {
        Redundancy { copies: 9, missing: 1, behind: 0, resynced_bytes: 0 }
    }

    fn wants_back(&self, _slot: u32) -> bool {
        true
    }

    fn whereabouts(&self, slot: u32) -> Option<String> {
        Some(format!("drawer {slot}"))
    }

    fn adopt(&mut self) {
        self.log.note("adopt");
    }

    fn is_copy(&mut self) {
        self.log.note("is_copy");
    }

    fn presence(&self) -> Presence<'_> {
        Presence { answers: false, drains: true, server: "", ..Presence::default() }
    }

    fn take_lost(&mut self, tell: &mut dyn FnMut(Range<u32>)) {
        if self.told < self.log.losses.load(SeqCst) {
            self.told += 1;
            tell(0..1);
        }
    }
}

fn spy(log: &Log, block: usize) -> Spy {
    Spy { ram: Ram::new(block, 16 * EXTENT), log: log.clone(), told: 0 }
}

fn boxed(log: &Log) -> Box<dyn Store> {
    Box::new(spy(log, BLOCK))
}

/// All stores that stand on others, by their names.
fn all(log: &Log) -> Vec<(&'static str, Box<dyn Store>)> {
    let tier = || Tier { store: boxed(log), choosy: false };
    let spare = Spare { store: boxed(log), after: std::time::Duration::from_secs(1000) };
    let none = Faults::default();
    vec![
        ("box", Box::new(boxed(log))),
        ("faulty", Box::new(Faulty::new(spy(log, BLOCK), none, 1))),
        ("delayed", Box::new(Delayed::new(spy(log, BLOCK), 1..1000, 1))),
        ("encrypted", Box::new(Encrypted::new(spy(log, BLOCK), BLOCK).unwrap().splitting_to(UNIT))),
        ("compressed", Box::new(Compressed::new(spy(log, UNIT), BLOCK, UNIT, Codec::Lz4).unwrap())),
        (
            "striped",
            Box::new(Striped::new(vec![boxed(log), boxed(log)], Placement::RoundRobin, BLOCK, None).unwrap()),
        ),
        ("tiered", Box::new(Tiered::new(vec![tier(), tier()], BLOCK).unwrap())),
        (
            "mirror",
            Box::new(
                Mirror::with_spares(vec![boxed(log), boxed(log)], vec![spare], BLOCK)
                    .unwrap()
                    .splitting_to(UNIT),
            ),
        ),
    ]
}

/// What a store does not pass on, and why. (`drains` is a part of `presence`.)
const OWN: [(&str, &str, &str); 7] = [
    ("encrypted", "judge", "its tags have judged the bytes"),
    ("compressed", "may_split", "its units are not split"),
    ("compressed", "split", "the same"),
    ("tiered", "joins", "neighbours may lie in different stores"),
    ("mirror", "judge", "it keeps verdicts itself, and reads another copy"),
    ("mirror", "redundancy", "it counts its own copies"),
    ("mirror", "drains", "it empties the copy itself"),
];

/// A store, and what an engine has for it.
struct Rig {
    store: Box<dyn Store>,
    ring: Ring,
    memory: usize,
    ended: Vec<Ended>,
}

impl Rig {
    fn call(&mut self, call: impl FnOnce(&mut dyn Store, &mut StoreRing<'_>, &mut Vec<Ended>)) {
        call(&mut *self.store, &mut StoreRing::new(&mut self.ring, 0, 48), &mut self.ended);
    }

    /// The events of the ring until `is_over`.
    fn until(&mut self, is_over: impl Fn(&Rig) -> bool) {
        while !is_over(self) {
            self.ring.enter(1).unwrap();
            while let Some(done) = self.ring.done() {
                self.call(|store, ring, ended| store.event(ring, done, ended));
            }
        }
    }

    fn operate(&mut self, kind: OpKind, slot: u32) {
        let pieces = [Piece::new(self.memory, BLOCK)];
        let op = Op { id: 1, kind, slot, pieces: &pieces, urgent: true };
        // SAFETY: the array and the memory stay until the operation has ended, below.
        self.call(|store, ring, ended| unsafe { store.begin(ring, op, ended) });
        self.until(|rig| !rig.ended.is_empty());
        assert_eq!(self.ended.pop(), Some(Ended::well(1)));
        assert!(self.ended.is_empty());
    }
}

/// The methods that the store passes on.
fn passed_on(store: Box<dyn Store>, log: &Log) -> Option<Vec<&'static str>> {
    let ring = match Ring::with(IoEngine::of_tests(), 64, true) {
        Ok(ring) => ring,
        Err(error) => {
            eprintln!("SKIPPED: no ring: {error}");
            return None;
        }
    };
    let memory = memory::reserve(BLOCK).unwrap() as usize;
    let mut rig = Rig { store, ring, memory, ended: Vec::new() };
    let mut passed = Vec::new();
    let mut note = |method, is_passed: bool| passed.extend(is_passed.then_some(method));
    let event = |log: &Log| log.asked.lock().unwrap().contains(&"event");
    note("name", rig.store.name().contains("spy"));
    note("open", log.hears("open", || rig.call(|store, ring, ended| store.open(ring, ended))));
    rig.until(|_| event(log));
    note("event", true);
    rig.store.grow().unwrap();
    note("slots", rig.store.slots() > 0);
    note("begin", log.hears("begin", || rig.operate(OpKind::Write, 0)));
    note("grow", true);
    rig.operate(OpKind::Read, 0);
    let judge = |good| {
        move |store: &mut dyn Store, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>| {
            store.judge(ring, 1, 0..1, good, ended);
        }
    };
    note("judge", log.hears("judge", || rig.call(judge(true))));
    note("joins", rig.store.joins(1));
    note("takes_pieces", rig.store.takes_pieces());
    note("condition", rig.store.condition().is_some_and(|words| words.contains("the spy is cold")));
    note("redundancy", rig.store.redundancy().copies >= 9);
    note("wants_back", rig.store.wants_back(0));
    note("whereabouts", rig.store.whereabouts(0).is_some_and(|words| words.contains("drawer 0")));
    note("is_copy", log.hears("is_copy", || rig.store.is_copy()));
    note("presence", !rig.store.presence().answers);
    note("drains", rig.store.presence().drains);
    note("share", log.hears("share", || rig.store.share(5).unwrap()));
    note("unshare", log.hears("unshare", || rig.store.unshare(5)));
    log.losses.fetch_add(1, SeqCst);
    let mut lost = Vec::new();
    rig.store.take_lost(&mut |slots| lost.extend(slots));
    note("take_lost", lost.first() == Some(&0));
    rig.store.take_lost(&mut |slots| panic!("{slots:?} were lost once more"));
    let (mut noted, asked) = (true, &mut rig);
    let leaves = log.hears("leaving", || asked.call(|store, ring, _| noted = store.leaving(ring, true)));
    note("leaving", leaves && !noted);
    rig.until(|_| event(log));
    note("may_split", log.hears("may_split", || _ = rig.store.may_split(4)) && rig.store.may_split(4));
    let may_split = rig.store.may_split(4);
    note("split", may_split && log.hears("split", || rig.store.split(4)));
    note("forget", log.hears("forget", || rig.store.forget(0..4)));
    note("close", log.hears("close", || rig.store.close()));
    note("inherit", log.hears("inherit", || rig.store.inherit().unwrap()));
    note("adopt", log.hears("adopt", || rig.store.adopt()));
    Some(passed)
}

/// The methods of the trait, from its source, without those that say what a store stands on.
fn methods() -> Vec<String> {
    let source = include_str!("../../src/shelf/mod.rs");
    let source = source.split_once("pub trait Store: Send {").unwrap().1;
    let names = source.lines().filter_map(|line| {
        let line = line.strip_prefix("    unsafe fn ").or(line.strip_prefix("    fn "))?;
        Some(line[..line.find('(')?].to_owned())
    });
    names.filter(|name| !name.starts_with("below")).collect()
}

#[test]
fn what_is_asked_of_a_store_reaches_the_stores_in_it() {
    let methods = methods();
    assert!(methods.len() > 20, "{methods:?}");
    let mut wrong = Vec::new();
    for index in 0..all(&Log::default()).len() {
        let log = Log::default();
        let (name, store) = all(&log).swap_remove(index);
        let Some(passed) = passed_on(store, &log) else { return };
        for method in methods.iter().map(String::as_str).chain(["drains"]) {
            let why = OWN.iter().find(|&&(store, own, _)| (store, own) == (name, method));
            match (passed.contains(&method), why) {
                (false, None) => wrong.push(format!("{name} does not pass {method} on")),
                (true, Some((_, _, why))) => wrong.push(format!("{name} passes {method} on, though {why}")),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let known = |method: &str| method == "drains" || methods.iter().any(|other| other == method);
    assert!(OWN.iter().all(|(_, method, _)| known(method)), "a method that there is not");
}

/// With compression, too: a server that does not answer gets no new extents if there is another.
#[test]
fn an_extent_goes_to_a_store_that_answers() {
    let (away, there) = (Log::default(), Ram::new(UNIT, 16 * EXTENT));
    let compressed = |store: Box<dyn Store>| -> Box<dyn Store> {
        Box::new(Compressed::new(store, BLOCK, UNIT, Codec::Lz4).unwrap())
    };
    let stores = vec![compressed(Box::new(spy(&away, UNIT))), compressed(Box::new(there))];
    let mut store = Striped::new(stores, Placement::RoundRobin, BLOCK, None).unwrap();
    assert!(!away.hears("grow", || (0..4).for_each(|_| store.grow().unwrap())));
}
