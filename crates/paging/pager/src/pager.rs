//! The pager as the program has it: one or several engines, each with the addresses that it owns,
//! and the requests that are made of them.
//!
//! Each engine has a thread, a userfaultfd, a ring, a store and frames of its own; on the path of a
//! fault they share nothing. A request for a range is cut at the edges of [stripes](crate::stripes)
//! and made of the owner of each part, in order.

use crate::engine::Engine;
use crate::frames::split::Split;
use crate::member::{Added, Member};
use crate::stripes::{Part, Stripes};
use crate::sync::Guard;
use crate::{Error, Options};
use std::fs::File;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terapage_stats::{Counters, FILE_NAME, MAGIC, REGIONS, RegionCounters, STRIDE, Shared, Snapshot, Whole};
use terapage_store::Store;
use terapage_sys::fd::Fd;
use terapage_sys::{file, thread};

/// Makes a store of this process, and those of its forked children: one for each pager.
pub type MakeStore = dyn Fn() -> Result<Box<dyn Store>, Error> + Send + Sync;

/// The most generations of forks.
const GENERATIONS: usize = 250;

/// Paged memory. A process has one `Pager`, and it lasts as long as the process.
pub struct Pager {
    members: Vec<Member>,
    stripes: Stripes,
    /// The budget of several pagers.
    split: Option<&'static Split>,
    /// The bytes that the budget can be at most.
    most_bytes: usize,
    whole: Whole,
    begins: Option<fn(Whole)>,
    make_store: Box<MakeStore>,
    // Kept open so that other processes find the counters.
    stats_file: Fd,
}

/// A fork that is about to happen; all pagers are parked.
pub struct Forking {
    holds: Vec<Fd>,
    asking: Vec<Guard<'static, ()>>,
    /// The signals that were blocked before.
    signals: thread::Signals,
}

// SAFETY: the thread that forked gives it back, in the parent and in the child.
unsafe impl Send for Forking {}

fn shared(pagers: usize) -> Result<(Fd, Whole), Error> {
    const { assert!(STRIDE.is_multiple_of(terapage_sys::PAGE)) };
    let name = std::ffi::CString::new(FILE_NAME).expect("no zero byte");
    let (fd, at) = file::memory_file(&name, pagers * STRIDE)?;
    // SAFETY: the memory was mapped just now, is large enough, and is never unmapped; zeros are
    // valid counters.
    let all = unsafe { std::slice::from_raw_parts(at.cast::<Shared>(), pagers) };
    let whole = Whole(all);
    let counters = whole.first();
    counters.pid.store(thread::pid(), Relaxed);
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    counters.started_s.store(now, Relaxed);
    counters.pagers.store(pagers as u64, Relaxed);
    all.iter().rev().for_each(|shared| shared.counters.magic.store(MAGIC, SeqCst));
    Ok((fd, whole))
}

impl Pager {
    /// Starts a pager, or several. `make_store` is called now, and in each child of a fork, for
    /// each of them.
    ///
    /// # Errors
    /// A userfaultfd, an io_uring, the store or the trace file cannot be made.
    pub fn start(options: Options, make_store: Box<MakeStore>) -> Result<Pager, Error> {
        // A trace has the references of one pager.
        let count = if options.trace.is_some() { 1 } else { options.pagers.max(1) };
        let (stats_file, whole) = shared(count)?;
        let begins = options.begins;
        begins.into_iter().for_each(|begins| begins(whole));
        let (most_bytes, least) =
            (options.frames * options.block, options.tuning.stripe_bytes.max(options.block));
        let mut all = vec![options];
        let mut split = None;
        if count > 1 {
            let first = all.remove(0);
            let (all_of_it, slices) = Split::new(first.share, most_bytes, first.block, count);
            split = Some(all_of_it);
            all.extend(slices.into_iter().enumerate().map(|(number, slice)| Options {
                share: Some(slice),
                // One tells of the process.
                each_second: first.each_second.filter(|_| number == 0),
                ..first.clone()
            }));
        }
        let members = all
            .into_iter()
            .zip(whole.0)
            .map(|(options, shared)| Member::start(options, make_store()?, shared))
            .collect::<Result<Vec<_>, _>>()?;
        let stripes = Stripes::new(count, least);
        Ok(Pager { members, stripes, split, most_bytes, whole, begins, make_store, stats_file })
    }

    /// The pagers.
    pub fn pagers(&self) -> usize {
        self.members.len()
    }

    fn first(&self) -> &Member {
        &self.members[0]
    }

    /// Whether frames are moved (`UFFDIO_MOVE`), not copied.
    pub fn moves(&self) -> bool {
        self.first().moves()
    }

    /// Bytes of a block, as the pager began: ranges that it is asked for begin and end on their
    /// edges.
    pub fn block(&self) -> usize {
        self.first().block
    }

    /// The counters of the first pager, and those of the whole process.
    pub fn counters(&self) -> &'static Counters {
        self.whole.first()
    }

    /// The counters of all pagers.
    pub fn whole(&self) -> Whole {
        self.whole
    }

    /// What all pagers together have counted.
    pub fn snapshot(&self) -> Snapshot {
        self.whole.snapshot()
    }

    /// The counters of a region at the first pager, which has its place and size.
    pub fn region(&self, region: usize) -> &'static RegionCounters {
        &self.whole.0[0].regions[region]
    }

    /// The descriptor through which others read the counters.
    pub fn stats_file(&self) -> &Fd {
        &self.stats_file
    }

    /// The parts of a range, in order, each with its owner. With one pager it is not cut.
    fn parts(&self, start: usize, len: usize) -> Result<Vec<Part>, Error> {
        if self.members.len() == 1 {
            return Ok(vec![Part { owner: 0, at: start, len }]);
        }
        self.stripes.cut(start, len).ok_or(Error::NotPaged { start, len })
    }

    /// Makes a request of the owner of each part of a range, in order.
    fn each(
        &self,
        start: usize,
        len: usize,
        mut ask: impl FnMut(&Member, Part) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.parts(start, len)?.into_iter().try_for_each(|part| ask(&self.members[part.owner], part))
    }

    /// Makes a request of each pager. All are asked; the first error is returned.
    fn all(&self, ask: impl Fn(&Member) -> Result<(), Error>) -> Result<(), Error> {
        self.members.iter().map(ask).fold(Ok(()), Result::and)
    }

    /// Pages a range of private, anonymous, writable memory from now on. Its first `held` bytes may
    /// hold something; the rest was never touched.
    ///
    /// # Errors
    /// The kernel does not let the range be registered, or has no memory for the table of its
    /// blocks.
    pub fn add(&self, start: usize, len: usize, held: usize) -> Result<(), Error> {
        self.add_around(start, len, held, &[])
    }

    /// Like [`add`](Self::add), without the ranges `loose` (from, to; ascending, on blocks' edges):
    /// they are not paged, as if they had been [released](Self::release). From `held` to the next
    /// of these ranges, memory was never touched; behind that lie reservations, which do not count
    /// as released.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_around(
        &self,
        start: usize,
        len: usize,
        held: usize,
        loose: &[(usize, usize)],
    ) -> Result<(), Error> {
        if self.members.len() == 1 {
            let only = Added { start, len, held, loose: loose.to_vec() };
            return self.first().add(vec![only], usize::MAX);
        }
        let held_to = start + held;
        let reserved = loose.iter().map(|&(from, _)| from).find(|&from| from >= held_to);
        let reserved = reserved.unwrap_or(start + len);
        let mut ranges: Vec<Vec<Added>> = vec![Vec::new(); self.members.len()];
        for part in self.stripes.add(start, len) {
            // Behind the first reservation there may be bytes anywhere.
            let held_to = if part.at >= reserved { part.at + part.len } else { held_to };
            ranges[part.owner].push(within(part, held_to, loose));
        }
        let mut all = self.members.iter().zip(ranges);
        all.try_for_each(|(member, ranges)| member.add(ranges, reserved))
    }

    /// Drops the bytes of the range: it reads as zeros from now on.
    ///
    /// # Errors
    /// The range is not all paged.
    pub fn discard(&self, start: usize, len: usize) -> Result<(), Error> {
        self.each(start, len, |member, part| member.mailbox.ask_for(part.at, part.len, Engine::discard))
    }

    /// Drops the bytes of several ranges (from, to) by one request of each pager.
    ///
    /// # Errors
    /// The ranges are not all paged.
    pub fn discard_all(&self, ranges: &[(usize, usize)]) -> Result<(), Error> {
        let mut parts: Vec<Vec<Part>> = vec![Vec::new(); self.members.len()];
        for &(from, to) in ranges {
            self.parts(from, to - from)?.into_iter().for_each(|part| parts[part.owner].push(part));
        }
        let mut all = self.members.iter().zip(parts).filter(|(_, parts)| !parts.is_empty());
        all.try_for_each(|(member, parts)| {
            member.mailbox.ask(move |engine| {
                parts.iter().try_for_each(|part| {
                    let (first, end) = engine.blocks_of(part.at, part.len)?;
                    engine.discard(first, end)
                })
            })
        })
    }

    /// Puts all bytes of the range into the program; it is not paged until
    /// [`restore`](Self::restore).
    ///
    /// # Errors
    /// The range is not all paged. Or the process may have no more mappings: then the range is
    /// paged as before.
    pub fn release(&self, start: usize, len: usize) -> Result<(), Error> {
        let mut released = start;
        let done = self.each(start, len, |member, part| {
            member.mailbox.ask_for(part.at, part.len, Engine::release)?;
            released = part.at + part.len;
            Ok(())
        });
        if done.is_err() && released > start {
            self.restore(start, released - start)?;
        }
        done
    }

    /// Pages a range again that was released.
    ///
    /// # Errors
    /// The range is not all paged or released, or the kernel does not let it be registered.
    pub fn restore(&self, start: usize, len: usize) -> Result<(), Error> {
        self.each(start, len, |member, part| member.mailbox.ask_for(part.at, part.len, Engine::restore))
    }

    /// Says that the range will be touched soon.
    ///
    /// # Errors
    /// The range is not all paged.
    pub fn will_need(&self, start: usize, len: usize) -> Result<(), Error> {
        self.each(start, len, |member, part| member.mailbox.ask_for(part.at, part.len, Engine::will_need))
    }

    /// Says whether the range will be touched in random order: then nothing is read ahead in it.
    ///
    /// # Errors
    /// The range is not all paged.
    pub fn set_random(&self, start: usize, len: usize, random: bool) -> Result<(), Error> {
        self.each(start, len, |member, part| member.set_random(part.at, part.len, random))
    }

    /// Says that the range will not be touched soon: its frames are evicted first.
    ///
    /// # Errors
    /// The range is not all paged.
    pub fn done_with(&self, start: usize, len: usize) -> Result<(), Error> {
        self.each(start, len, |member, part| member.done_with(part.at, part.len))
    }

    /// Makes room in the store for this many bytes in all, if it has less. With several pagers each
    /// makes so much room: any of them may own them.
    ///
    /// # Errors
    /// It cannot have so much.
    pub fn reserve(&self, bytes: usize) -> Result<(), Error> {
        let reserve = move |engine: &mut Engine| engine.io.reserve(bytes.div_ceil(engine.block));
        self.all(|member| member.mailbox.ask(reserve))
    }

    /// Pages within so many bytes from now on: at most those of [`Options::frames`]. What is too
    /// much leaves memory between faults, soon, but not before this returns.
    ///
    /// # Errors
    /// The bytes are more than that, or fewer than 8 blocks, or others share the budget.
    pub fn set_budget(&self, bytes: usize) -> Result<(), Error> {
        let Some(split) = self.split else {
            return self.first().mailbox.ask(move |engine| engine.set_budget(bytes));
        };
        let (least, most) = (split.least(), self.most_bytes);
        if split.is_shared() || !(least..=most).contains(&bytes) {
            return Err(Error::Budget { least, most });
        }
        split.set_total(bytes / self.block() * self.block());
        self.whole.first().budget_bytes.store((bytes / self.block() * self.block()) as u64, Relaxed);
        Ok(())
    }

    /// Divides blocks into pages now, if [`Options::divides`] allows it and nothing stands against
    /// it. Whether all pagers did. Each does so by itself when it pays.
    ///
    /// # Errors
    /// None.
    pub fn divide(&self) -> Result<bool, Error> {
        self.members.iter().try_fold(true, |all, member| Ok(member.mailbox.ask(Engine::divide)? && all))
    }

    /// The parts of a range of whole blocks that are paged and not known to be zero: from, to.
    ///
    /// # Errors
    /// The range is not all paged.
    pub fn touched(&self, start: usize, len: usize) -> Result<Vec<(usize, usize)>, Error> {
        let mut all: Vec<(usize, usize)> = Vec::new();
        self.each(start, len, |member, part| {
            let touched = |engine: &mut Engine, first, end| Ok(engine.touched(first, end));
            let mut more = member.mailbox.ask_for(part.at, part.len, touched)?.into_iter().peekable();
            if let (Some(last), Some(next)) = (all.last_mut(), more.peek())
                && last.1 == next.0
            {
                last.1 = next.1;
                more.next();
            }
            all.extend(more);
            Ok(())
        })?;
        Ok(all)
    }

    /// Maps `bytes` bytes of a file, from `offset` on, at a paged range; zeros follow. The file is
    /// read as the blocks are touched. If it was opened with O_DIRECT, `offset` must be a multiple
    /// of the page size.
    ///
    /// # Errors
    /// The range is not all paged; too many files are mapped.
    pub fn map_file(
        &self,
        start: usize,
        len: usize,
        file: &File,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Error> {
        let mut mapped = Vec::new();
        let done = self.each(start, len, |member, part| {
            let (offset, bytes) = part.of_file(start, offset, bytes);
            member.map_file(part.at, part.len, file, offset, bytes)?;
            mapped.push(part);
            Ok(())
        });
        if done.is_err() {
            for part in mapped {
                self.members[part.owner].unmap_file(part.at, part.len)?;
            }
        }
        done
    }

    /// Unmaps a range: it reads as zeros from now on. What was not synced is lost.
    ///
    /// # Errors
    /// No file is mapped there.
    pub fn unmap_file(&self, start: usize, len: usize) -> Result<(), Error> {
        self.each(start, len, |member, part| member.unmap_file(part.at, part.len))
    }

    /// Writes what the program has changed in a mapped range back to its file, within `bytes` bytes
    /// of the file from `offset` on, and waits until it is durable. Returns the bytes written.
    ///
    /// Call it for one file in one thread at a time. What other threads write to the range
    /// meanwhile reaches the file now or at the next sync.
    ///
    /// # Errors
    /// The file cannot be written or made durable: the next sync tries again what is missing. Or no
    /// file is mapped there.
    pub fn sync_file(
        &self,
        start: usize,
        len: usize,
        file: &File,
        offset: u64,
        bytes: u64,
    ) -> Result<u64, Error> {
        let mut written = 0;
        self.each(start, len, |member, part| {
            let (offset, bytes) = part.of_file(start, offset, bytes);
            written += member.sync_file(part.at, part.len, file, offset, bytes)?;
            Ok(())
        })?;
        Ok(written)
    }

    /// Makes a request of each pager for the numbers of its blocks in a range, which follow each
    /// other as its stripes do: the first, and the one after the last.
    fn by_number(
        &self,
        start: usize,
        len: usize,
        ask: impl Fn(&mut Engine, u32, u32) + Clone + Send + 'static,
    ) -> Result<(), Error> {
        let parts = self.parts(start, len)?;
        for (owner, member) in self.members.iter().enumerate() {
            let mut own = parts.iter().filter(|part| part.owner == owner);
            let ask = ask.clone();
            if let Some(&first) = own.next() {
                let last = *own.next_back().unwrap_or(&first);
                member.mailbox.ask(move |engine| {
                    let (first, _) = engine.blocks_of(first.at, first.len)?;
                    let (_, end) = engine.blocks_of(last.at, last.len)?;
                    ask(engine, first, end);
                    Ok(())
                })?;
            } else if let Some(next) = self.stripes.from(owner, start) {
                // None yet; the range may grow.
                member.mailbox.ask(move |engine| {
                    let (first, _) = engine.blocks_of(next.at, 0)?;
                    ask(engine, first, first);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Counts a range by itself from now on, as region number `region`: from 1 to less than
    /// [`REGIONS`], not in use.
    ///
    /// # Errors
    /// The range is not one of whole paged blocks.
    pub fn name_region(&self, region: usize, start: usize, len: usize, name: &str) -> Result<(), Error> {
        assert!((1..REGIONS).contains(&region), "no such region");
        let owned = name.to_owned();
        self.by_number(start, len, move |engine, first, end| engine.name(region, first, end, &owned))?;
        let counters = self.region(region);
        counters.set_name(name);
        counters.start.store(start as u64, Relaxed);
        counters.size_bytes.store(len as u64, Relaxed);
        Ok(())
    }

    /// Changes the length of a region.
    ///
    /// # Errors
    /// The range is not one of whole paged blocks.
    pub fn resize_region(&self, region: usize, start: usize, len: usize) -> Result<(), Error> {
        self.by_number(start, len, move |engine, first, end| engine.rename(region, first, end))
    }

    /// Ends a region; its counts are added to those of the part around it.
    ///
    /// # Errors
    /// None. A region that is not in use is left as it is.
    pub fn end_region(&self, region: usize) -> Result<(), Error> {
        self.all(|member| {
            member.mailbox.ask(move |engine| {
                engine.table.usage.unname(region);
                Ok(())
            })
        })
    }

    /// Ends the trace, if there is one. When this returns, the file has what happened until now;
    /// nothing more is recorded. Call it before the process ends; it takes five seconds at most.
    ///
    /// # Errors
    /// The file did not take all of the trace, or not in time. The part that it took can be read.
    pub fn finish_trace(&self) -> Result<(), Error> {
        self.all(Member::finish_trace)
    }

    /// Gives back what the stores hold elsewhere. The caller ends the process at once: no memory
    /// that is not there comes any more, and whoever touches it waits.
    ///
    /// # Errors
    /// None.
    pub fn close_stores(&self) -> Result<(), Error> {
        self.all(|member| member.mailbox.ask(Engine::close_stores))
    }

    /// Tells the stores that the process is about to execute another program (`leaves`), or, after
    /// that, that it stays. Whether all have noted that it leaves: call it again until they have.
    pub fn leaving(&self, leaves: bool) -> bool {
        // All are told, also behind one that has not noted it.
        self.members.iter().filter(|member| !member.leaving(leaves)).count() == 0
    }

    /// How often the pager has waited for the trace to be written; 0 without one.
    pub fn trace_stalls(&self) -> u64 {
        self.members.iter().map(Member::trace_stalls).sum()
    }

    /// Says that a fork is near: blocks that are in the program, or are touched from now on, stay
    /// there as far as the budget allows, so that the child can touch them before it has a pager.
    /// Each call is followed by [`before_fork`](Self::before_fork).
    ///
    /// # Errors
    /// None.
    pub fn hold(&self) -> Result<(), Error> {
        self.all(|member| member.mailbox.ask(Engine::fork_is_near))
    }

    /// Whether the child of a fork could have a pager. Each generation reads the stores of all
    /// earlier ones, and the number of stores is limited.
    pub fn may_fork(&self) -> bool {
        self.first().generations() < GENERATIONS
    }

    /// Before a fork: parks all pagers until [`after_fork_in_parent`](Self::after_fork_in_parent)
    /// or [`after_fork_in_child`](Self::after_fork_in_child). Only faults of the calling thread are
    /// served, and signals wait. The caller must hold no lock that a pager could want.
    ///
    /// # Errors
    /// No pipe for the child can be made: the pagers go on.
    pub fn before_fork(&self) -> Result<Forking, Error> {
        // A signal would let the thread continue before its fault is served completely.
        let signals = thread::block_signals();
        // First all locks: who holds one may wait for a page of a pager that would be parked by
        // then.
        let asking: Vec<_> = self.members.iter().map(|member| member.mailbox.lock()).collect();
        self.members.iter().zip(&asking).for_each(|(member, asking)| member.park(asking));
        match self.members.iter().map(Member::freeze).collect() {
            Ok(holds) => Ok(Forking { holds, asking, signals }),
            Err(error) => {
                self.members.iter().for_each(Member::unpark);
                drop(asking);
                thread::restore_signals(&signals);
                Err(error)
            }
        }
    }

    /// After the fork, in the parent, whether or not it succeeded.
    pub fn after_fork_in_parent(&self, forking: Forking) {
        let Forking { holds, asking, signals } = forking;
        drop(holds);
        self.members.iter().for_each(Member::unpark);
        drop(asking);
        thread::restore_signals(&signals);
    }

    /// After the fork, in the child, before anything touches paged memory.
    ///
    /// # Errors
    /// The child has no pager, and must not use paged memory: something touched paged memory too
    /// early, there were too many generations of forks, or a userfaultfd, an io_uring, the store or
    /// a thread cannot be made.
    pub fn after_fork_in_child(&mut self, forking: Forking) -> Result<(), Error> {
        let Forking { holds, asking, signals } = forking;
        let (stats_file, whole) = shared(self.members.len())?;
        self.begins.into_iter().for_each(|begins| begins(whole));
        if let Some(split) = self.split {
            split.in_child();
        }
        let stores = self.members.iter().map(|_| (self.make_store)()).collect::<Result<Vec<_>, _>>()?;
        // Every pager must have its addresses before the first thread begins.
        for (((member, store), shared), hold) in self.members.iter_mut().zip(stores).zip(whole.0).zip(holds) {
            member.begin_child(store, shared, hold)?;
        }
        drop(asking);
        self.whole = whole;
        self.stats_file = stats_file;
        if let Some(total) = self.split.and_then(|split| split.own_total()) {
            whole.first().budget_bytes.store(total as u64, Relaxed);
        }
        self.members.iter().try_for_each(Member::spawn_child)?;
        thread::restore_signals(&signals);
        Ok(())
    }
}

/// A part of a range that is added: what it holds, and what of it is not paged.
fn within(part: Part, held_to: usize, loose: &[(usize, usize)]) -> Added {
    let (start, len) = (part.at, part.len);
    let end = start + len;
    let loose = loose.iter().map(|&(from, to)| (from.max(start), to.min(end)));
    let held = held_to.clamp(start, end) - start;
    Added { start, len, held, loose: loose.filter(|(from, to)| from < to).collect() }
}
