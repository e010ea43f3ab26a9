//! A process that makes one call, and the memory of that call.

use std::ffi::CString;
use std::io::Write;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use terapage_calls::{Direction, Machine, Memory, Outcome, Range, visit};
use terapage_fuzz::Random;

/// The machine of this test.
pub const HERE: Machine = if cfg!(target_arch = "aarch64") { Machine::Arm } else { Machine::X86 };
/// Pieces of memory of a call, at most.
const PIECES: usize = 16;
/// Bytes of room of each.
const ROOM: usize = 1 << 18;
/// The largest size of a page.
const PAGE: usize = 65536;

/// A call to make.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Makes what the call needs, and gives the arguments.
    pub arguments: fn(&mut World) -> [usize; 6],
    /// The call gives an error, but only after it has touched its memory.
    pub fails: bool,
    /// The call gives different numbers each time.
    pub varies: bool,
}

/// A case of a call that succeeds.
pub const fn case(name: &'static str, arguments: fn(&mut World) -> [usize; 6]) -> Case {
    Case { name, arguments, fails: false, varies: false }
}

impl Case {
    /// See the field.
    pub const fn fails(mut self) -> Case {
        self.fails = true;
        self
    }

    /// See the field.
    pub const fn varies(mut self) -> Case {
        self.varies = true;
        self
    }
}

/// How a process with a call has ended.
#[derive(Clone, Copy, Debug)]
pub enum Done {
    /// The kernel has answered.
    Result {
        /// With this.
        result: isize,
        /// The bytes of each piece of memory that the table says.
        ends: Ends,
        /// Which pieces the kernel may touch less of.
        loose: u32,
        /// What the visit said.
        outcome: Outcome,
    },
    /// It has been ended by a signal, or by itself.
    Ended(i32),
}

/// Numbers of bytes, of as many pieces as there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    count: usize,
    bytes: [usize; PIECES],
}

impl std::ops::Deref for Ends {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.bytes[..self.count]
    }
}

/// A piece of memory that a call has been given.
pub struct Piece {
    /// Its address.
    pub start: usize,
    /// Where mapped memory ends.
    pub limit: usize,
    /// A text ends here.
    text: Option<usize>,
    loose: bool,
}

/// Where the pieces of a call's memory lie.
pub trait Places {
    /// The place of the next piece, which begins with these bytes and lies at a multiple of `step`,
    /// and where its mapped memory ends. As many bytes as fit have been copied there.
    fn place(&mut self, piece: usize, bytes: &[u8], step: usize) -> (usize, usize);
}

/// Each piece in memory of its own: with room, or with the ends of pieces where memory ends, one of
/// them moved beyond.
struct AtEnds {
    ends: Vec<usize>,
    beyond: Option<usize>,
}

impl Places for AtEnds {
    fn place(&mut self, piece: usize, bytes: &[u8], step: usize) -> (usize, usize) {
        let base = mapped(ROOM + PAGE);
        let limit = base + ROOM;
        let moved = if self.beyond == Some(piece) { step } else { 0 };
        let start = self.ends.get(piece).map_or(base, |end| limit - end + moved);
        let fits = bytes.len().min(limit - start);
        // SAFETY: the memory is new and as long; the last page, behind `limit`, is taken away.
        unsafe {
            std::slice::from_raw_parts_mut(start as *mut u8, fits).copy_from_slice(&bytes[..fits]);
            assert_eq!(libc::munmap(limit as *mut _, PAGE), 0);
        }
        (start, limit)
    }
}

/// The memory of a call, and what else the call needs.
pub struct World {
    /// The pieces of memory so far.
    pub pieces: Vec<Piece>,
    places: Box<dyn Places>,
    /// The next piece lies at a multiple of this.
    step: usize,
    /// Calls that clear up.
    later: Vec<(i64, [usize; 3])>,
    /// Random numbers of the seed.
    pub random: Random,
}

impl World {
    /// A world without memory.
    pub fn new(places: Box<dyn Places>, seed: u64) -> World {
        World { pieces: Vec::new(), places, step: 1, later: Vec::new(), random: Random::from_seed(seed) }
    }

    fn place(&mut self, bytes: &[u8], text: bool) -> usize {
        let (start, limit) = self.places.place(self.pieces.len(), bytes, self.step);
        self.pieces.push(Piece { start, limit, text: text.then_some(bytes.len()), loose: false });
        self.step = 1;
        start
    }

    /// What a visit says: which bytes of each piece the call touches, and the outcome.
    pub fn visit(&self, number: usize, arguments: &[usize; 6]) -> (Ends, Outcome) {
        let count = self.pieces.len();
        let mut notes = Notes { pieces: &self.pieces, ends: Ends { count, ..Ends::default() } };
        let outcome = visit(number, arguments, &mut notes);
        (notes.ends, outcome)
    }

    /// Makes the calls that clear up.
    pub fn clear_up(&self) {
        for &(number, [a, b, c]) in &self.later {
            // SAFETY: these calls touch no memory.
            unsafe { libc::syscall(number, a, b, c, 0, 0, 0) };
        }
    }

    /// The next piece of memory must lie at multiples of this number.
    pub fn aligned(&mut self, bytes: usize) -> &mut World {
        self.step = bytes;
        self
    }

    /// Memory with these bytes.
    pub fn mem(&mut self, bytes: &[u8]) -> usize {
        self.place(bytes, false)
    }

    /// Memory with these words of 64 bits.
    pub fn words(&mut self, words: &[usize]) -> usize {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.mem(&bytes)
    }

    /// Memory with these numbers of 32 bits.
    pub fn ints(&mut self, ints: &[i32]) -> usize {
        let bytes: Vec<u8> = ints.iter().flat_map(|int| int.to_ne_bytes()).collect();
        self.mem(&bytes)
    }

    /// Memory of zeros, into which the kernel writes.
    pub fn out(&mut self) -> usize {
        self.place(&[], false)
    }

    /// A text with its end.
    pub fn text(&mut self, text: &str) -> usize {
        let bytes = CString::new(text).unwrap();
        self.place(bytes.as_bytes_with_nul(), true)
    }

    /// Makes this call after the case's, to clear up. It touches no memory.
    pub fn later(&mut self, number: i64, arguments: [usize; 3]) {
        self.later.push((number, arguments));
    }

    /// The kernel may touch less of the latest piece of memory.
    pub fn loose(&mut self) {
        self.pieces.last_mut().unwrap().loose = true;
    }

    /// A number from the first to the second.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.random.below(most - least + 1)
    }

    /// A file with this number of bytes, open for both.
    pub fn file(&mut self, bytes: usize) -> usize {
        let mut file = temporary();
        file.write_all(&vec![b'x'; bytes]).unwrap();
        let fd = file.into_raw_fd();
        // SAFETY: the call touches no memory.
        assert_eq!(unsafe { libc::lseek(fd, 0, libc::SEEK_SET) }, 0);
        fd as usize
    }
}

/// A file without a name.
pub fn temporary() -> std::fs::File {
    // SAFETY: the name is a text; the file is new.
    unsafe { std::fs::File::from_raw_fd(checked(libc::memfd_create(c"calls".as_ptr(), 0) as isize) as i32) }
}

/// A process ends with this status if it may not prepare its call.
const FORBIDDEN: i32 = 77;

/// The call may not be prepared.
pub struct Forbidden;

/// The result of a call that must succeed.
pub fn checked(result: isize) -> usize {
    let error = std::io::Error::last_os_error().raw_os_error();
    if result < 0 && matches!(error, Some(libc::EPERM | libc::EACCES | libc::ENOSYS)) {
        std::panic::resume_unwind(Box::new(Forbidden));
    }
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    result as usize
}

fn mapped(bytes: usize) -> usize {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: no address is asked for.
    let start =
        unsafe { libc::mmap(null_mut(), bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start as usize
}

/// Notes which pieces of memory are announced, and how far.
struct Notes<'a> {
    pieces: &'a [Piece],
    ends: Ends,
}

impl Memory for Notes<'_> {
    fn range(&mut self, range: Range) -> bool {
        let _: Direction = range.direction;
        let piece = self.pieces.iter().position(|piece| (piece.start..piece.limit).contains(&range.start));
        if let Some(piece) = piece {
            let Piece { start, text, .. } = self.pieces[piece];
            let end = text.unwrap_or(range.start + range.len - start);
            self.ends.bytes[piece] = self.ends.bytes[piece].max(end);
        }
        true
    }

    fn read(&mut self, at: usize, into: &mut [u8]) -> bool {
        let end = at.saturating_add(into.len());
        if !self.pieces.iter().any(|piece| piece.start <= at && end <= piece.limit) {
            return false;
        }
        // SAFETY: the memory is mapped, and nothing changes it.
        into.copy_from_slice(unsafe { std::slice::from_raw_parts(at as *const u8, into.len()) });
        true
    }

    fn is_self(&mut self, pid: i32) -> bool {
        pid == std::process::id() as i32
    }
}

/// The directory in which each process has one of its own.
pub fn directory() -> &'static str {
    static DIRECTORY: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("terapage-calls.{}", std::process::id()));
        path.to_str().unwrap().into()
    })
}

/// What each test holds: the directory, and the right to make processes. A process that is made by
/// `fork` waits for ever for a lock that another thread held at that moment, so the tests follow
/// one another.
pub struct Alone {
    _turn: MutexGuard<'static, ()>,
}

impl Alone {
    /// Waits for the other test, and makes the directory.
    pub fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        std::fs::create_dir_all(directory()).unwrap();
        Self { _turn: turn }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(directory());
    }
}

/// The panics of a process that a test has made: its standard error is not kept by the test.
pub fn tell_panics() {
    std::panic::set_hook(Box::new(|info| drop(writeln!(std::io::stderr(), "{info}"))));
}

/// What a process leaves for its parent.
#[repr(C)]
struct Left {
    done: bool,
    result: isize,
    ends: Ends,
    loose: u32,
    outcome: Outcome,
}

/// Makes the call in a process of its own: with room, or with the ends of pieces of memory where
/// memory ends, one of them moved beyond.
pub fn attempt(number: usize, case: &Case, seed: u64, ends: &[usize], beyond: Option<usize>) -> Done {
    let (shared, protection) = (libc::MAP_SHARED | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the kernel chooses new memory.
    let left = unsafe { libc::mmap(null_mut(), size_of::<Left>(), protection, shared, -1, 0) };
    assert_ne!(left, libc::MAP_FAILED);
    let left = left.cast::<Left>();
    // SAFETY: the child uses what it has, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // A failure must not go on to the test's own ends.
        tell_panics();
        let made = std::panic::catch_unwind(|| make(number, case, seed, ends, beyond));
        // SAFETY: the memory is as long; nothing of the parent's is cleared up.
        unsafe {
            match made {
                Ok(made) => left.write(made),
                Err(why) if why.is::<Forbidden>() => libc::_exit(FORBIDDEN),
                Err(_) => {}
            }
            libc::_exit(0)
        }
    }
    let mut status = 0;
    // SAFETY: the child is this process's.
    while unsafe { libc::waitpid(child, &mut status, 0) } != child {}
    // Another process may get this number.
    let _ = std::fs::remove_dir_all(format!("{}/{child}", directory()));
    // SAFETY: the child has ended. Memory that it has not written is zeros, which are valid.
    let made = unsafe { left.read() };
    // SAFETY: nothing refers to the memory any more.
    unsafe { libc::munmap(left.cast(), size_of::<Left>()) };
    let Left { done, result, ends, loose, outcome } = made;
    if done { Done::Result { result, ends, loose, outcome } } else { Done::Ended(status) }
}

fn make(number: usize, case: &Case, seed: u64, ends: &[usize], beyond: Option<usize>) -> Left {
    // SAFETY: a signal that ends this process, if the call waits.
    unsafe { libc::alarm(20) };
    let place = format!("{}/{}", directory(), std::process::id());
    std::fs::create_dir(&place).unwrap();
    std::env::set_current_dir(&place).unwrap();
    let mut world = World::new(Box::new(AtEnds { ends: ends.to_vec(), beyond }), seed);
    let arguments = (case.arguments)(&mut world);
    let (ends, outcome) = world.visit(number, &arguments);
    let loose = world.pieces.iter().enumerate().map(|(i, piece)| u32::from(piece.loose) << i).sum();
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the call touches no memory.
    let process = unsafe { libc::getpid() };
    // SAFETY: the kernel touches the world's memory. Whatever else it does, this process ends.
    let result = unsafe { libc::syscall(number as i64, a, b, c, d, e, f) };
    // SAFETY: a process that the call has made ends here.
    unsafe {
        if libc::getpid() != process {
            libc::_exit(0);
        }
    }
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    world.clear_up();
    let result = if result == -1 { -error as isize } else { result as isize };
    Left { done: true, result, ends, loose, outcome }
}

/// Whether the kernel does not have the call, or does not allow it.
pub fn is_missing(number: usize, case: &Case) -> bool {
    let answer = attempt(number, case, 1, &[], None);
    let refusals = [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EOPNOTSUPP].map(|error| -error as isize);
    match answer {
        Done::Result { result, .. } => refusals.contains(&result),
        Done::Ended(status) => libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == FORBIDDEN,
    }
}
