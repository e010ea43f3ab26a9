//! A process as `/proc` describes it, and whether it can be adopted.

use crate::Why;
use crate::memory::{self, Mapping};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::time::{Duration, Instant};
use terapage_sys::executable;

/// A process.
pub struct Process {
    pub pid: u32,
    memory: fs::File,
}

/// Descriptors of these kinds mean that others use the program's memory while the pager takes it
/// away, or handle its faults.
const BARRING: [(&str, &str); 2] = [
    ("anon_inode:[userfaultfd]", "it handles page faults itself"),
    ("anon_inode:[io_uring]", "it has a ring of io_uring, which may use its memory at any time"),
];

/// The numbers of character devices that copy at once what is read and written: zeros and random
/// bytes, and terminals.
const PLAIN_DEVICES: [u32; 11] = [1, 4, 5, 136, 137, 138, 139, 140, 141, 142, 143];

/// The longest time in which a child of `vfork` must execute a program, and the time between two
/// looks at it.
const VFORK_MOST: Duration = Duration::from_secs(2);
const VFORK_LOOK: Duration = Duration::from_millis(1);

/// Why this process may not trace another.
pub fn may_not_trace(pid: u32) -> Why {
    // SAFETY: the call only returns a number.
    let own = unsafe { libc::geteuid() };
    let is_own = fs::metadata(format!("/proc/{pid}")).is_ok_and(|found| found.uid() == own);
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "3" => "kernel.yama.ptrace_scope is 3: nobody may trace it".to_owned(),
        scope @ ("1" | "2") if is_own => {
            format!("kernel.yama.ptrace_scope is {scope}: only root may trace it (try as root)")
        }
        _ => "it may not be traced (try as root, or as its user)".to_owned(),
    }
}

impl Process {
    /// Finds a process.
    pub fn find(pid: u32) -> Result<Process, Why> {
        let path = format!("/proc/{pid}/mem");
        let memory = fs::OpenOptions::new().read(true).write(true).open(path).map_err(|error| {
            match (error.kind(), error.raw_os_error()) {
                (io::ErrorKind::NotFound, _) => "there is no such process".to_owned(),
                (io::ErrorKind::PermissionDenied, _) => may_not_trace(pid),
                (_, Some(libc::ESRCH)) => "it has no memory: it is the kernel's, or has ended".to_owned(),
                _ => format!("its memory cannot be read ({error})"),
            }
        })?;
        Ok(Process { pid, memory })
    }

    fn read(&self, file: &str) -> Result<String, Why> {
        let path = format!("/proc/{}/{file}", self.pid);
        fs::read_to_string(&path).map_err(|error| format!("{path} cannot be read ({error})"))
    }

    /// A field of `/proc/PID/status`.
    fn field(status: &str, name: &str) -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    }

    /// Whether the process can be adopted at all.
    pub fn check(&self) -> Result<(), Why> {
        let status = self.read("status")?;
        let field = |name: &str| Self::field(&status, name);
        if field("Tgid") != Some(self.pid.into()) {
            return Err("it is a thread, not a process".into());
        }
        if self.pid == std::process::id() {
            return Err("it is this command".into());
        }
        match field("TracerPid") {
            Some(0) => {}
            tracer => return Err(format!("process {} traces it", tracer.unwrap_or(0))),
        }
        if status.lines().any(|line| line.starts_with("State:\tT")) {
            return Err("it is stopped (try: kill -CONT)".into());
        }
        let mut head = [0; 5];
        let exe = fs::File::open(format!("/proc/{}/exe", self.pid))
            .map_err(|_| "it has no executable: it is the kernel's, or has ended".to_owned())?;
        exe.read_exact_at(&mut head, 0).map_err(|error| format!("its executable: {error}"))?;
        if head != *b"\x7fELF\x02" {
            return Err("it is a 32-bit program: only 64-bit programs can be adopted".into());
        }
        self.check_descriptors()?;
        if field("Seccomp") != Some(0) {
            return Err("it has a filter of system calls, which the host would have to pass".into());
        }
        if self.personality()? & libc::ADDR_NO_RANDOMIZE as u64 != 0 {
            return Err("its addresses are not random, so a program that it executes would lie in the \
                        same places as it"
                .into());
        }
        self.shares_memory()
    }

    /// Refuses a process by its descriptors.
    fn check_descriptors(&self) -> Result<(), Why> {
        let link = |fd: &u32| fs::read_link(format!("/proc/{}/fd/{fd}", self.pid));
        let name = |fd: u32| Some((fd, link(&fd).ok()?.to_string_lossy().into_owned()));
        let all: Vec<(u32, String)> = self.descriptors()?.into_iter().filter_map(name).collect();
        if all.iter().any(|(_, link)| link.starts_with("/memfd:terapage")) {
            return Err("it is paged already (terapage stat shows how)".into());
        }
        let barring = |link: &str| BARRING.iter().find(|(kind, _)| link == *kind);
        if let Some((_, why)) = all.iter().find_map(|(_, link)| barring(link)) {
            return Err((*why).into());
        }
        all.iter().try_for_each(|(fd, link)| self.check_file(*fd, link))
    }

    /// Refuses descriptors through which memory is used while no thread waits for that, or past the
    /// page tables.
    fn check_file(&self, fd: u32, link: &str) -> Result<(), Why> {
        let Ok(file) = fs::metadata(format!("/proc/{}/fd/{fd}", self.pid)) else { return Ok(()) };
        if file.file_type().is_char_device() && !PLAIN_DEVICES.contains(&libc::major(file.rdev())) {
            return Err(format!("it has {link} open, whose driver may use its memory"));
        }
        let flags = self.read(&format!("fdinfo/{fd}")).unwrap_or_default();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|octal| i32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0);
        let is_stored = file.file_type().is_file() || file.file_type().is_block_device();
        if is_stored && flags & libc::O_DIRECT != 0 {
            return Err(format!("it has {link} open with O_DIRECT: the device would use its memory"));
        }
        Ok(())
    }

    fn personality(&self) -> Result<u64, Why> {
        let text = self.read("personality")?;
        u64::from_str_radix(text.trim(), 16).map_err(|error| format!("its personality: {error}"))
    }

    /// Whether it is a Go program.
    pub fn is_go(&self) -> bool {
        let path = CString::new(format!("/proc/{}/exe", self.pid)).unwrap_or_default();
        matches!(executable::cannot_be_paged(&path, &mut |_| {}), Some(executable::Why::Go { .. }))
    }

    /// Refuses a process with a child that has the same memory (CLONE_VM without CLONE_THREAD). A
    /// child of `vfork` soon executes a program, or ends: until then this waits for a while.
    fn shares_memory(&self) -> Result<(), Why> {
        let until = Instant::now() + VFORK_MOST;
        while let Some(child) = self.child_with_same_memory()? {
            if Instant::now() > until {
                return Err(format!("process {child} shares its memory"));
            }
            std::thread::sleep(VFORK_LOOK);
        }
        Ok(())
    }

    /// A child of any of the threads that has the same memory.
    fn child_with_same_memory(&self) -> Result<Option<u32>, Why> {
        Ok(self.threads()?.into_iter().find_map(|thread| self.children_with_same_memory(thread).pop()))
    }

    /// The children of a thread that have the same memory.
    pub fn children_with_same_memory(&self, thread: u32) -> Vec<u32> {
        let children = self.read(&format!("task/{thread}/children")).unwrap_or_default();
        let numbers = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
        numbers.filter(|&child| self.is_same_memory(child)).collect()
    }

    /// Whether two processes have the same memory (`kcmp`).
    fn is_same_memory(&self, other: u32) -> bool {
        /// `KCMP_VM`.
        const MEMORY: i64 = 1;
        // SAFETY: the call only compares.
        unsafe {
            libc::syscall(libc::SYS_kcmp, i64::from(self.pid), i64::from(other), MEMORY, 0_i64, 0_i64) == 0
        }
    }

    /// The signals with a handler that wait for a thread, its own and the process's; `None` if it
    /// has ended. A stopped thread also keeps those that it ignores.
    pub fn pending(&self, thread: u32) -> Option<u64> {
        let status = self.read(&format!("task/{thread}/status")).ok()?;
        let set = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(line.trim(), 16).ok()
        };
        Some((set("SigPnd:")? | set("ShdPnd:")?) & set("SigCgt:")?)
    }

    /// The numbers of the threads.
    pub fn threads(&self) -> Result<Vec<u32>, Why> {
        self.numbers("task")
    }

    /// The numbers of the descriptors.
    pub fn descriptors(&self) -> Result<Vec<u32>, Why> {
        self.numbers("fd")
    }

    /// How many descriptors its table has room for.
    pub fn descriptor_room(&self) -> Option<u64> {
        Self::field(&self.read("status").ok()?, "FDSize")
    }

    fn numbers(&self, directory: &str) -> Result<Vec<u32>, Why> {
        let path = format!("/proc/{}/{directory}", self.pid);
        let entries = fs::read_dir(&path).map_err(|error| format!("{path} cannot be read ({error})"))?;
        let names = entries.flatten().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
    }

    /// All mappings.
    pub fn memory(&self) -> Result<Vec<Mapping>, Why> {
        Ok(memory::parse(&self.read("maps")?))
    }

    /// Whether a thread is inside one of these calls.
    pub fn waits_in(&self, thread: u32, calls: &[i64]) -> bool {
        let text = self.read(&format!("task/{thread}/syscall")).unwrap_or_default();
        text.split(' ').next().and_then(|word| word.parse().ok()).is_some_and(|call| calls.contains(&call))
    }

    /// A thread's state, as proc_pid_stat(5) names it; `None` if there is no such thread.
    pub fn state(&self, thread: u32) -> Option<char> {
        self.read(&format!("task/{thread}/stat")).ok()?.rsplit_once(") ")?.1.chars().next()
    }

    /// Whether a thread has ended.
    pub fn has_ended(&self, thread: u32) -> bool {
        self.state(thread).is_none_or(|state| matches!(state, 'Z' | 'X' | 'x'))
    }

    /// The auxiliary vector: kinds and values.
    pub fn auxiliary(&self) -> Result<Vec<(u64, u64)>, Why> {
        let path = format!("/proc/{}/auxv", self.pid);
        let bytes = fs::read(&path).map_err(|error| format!("{path} cannot be read ({error})"))?;
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let pairs = bytes.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
        Ok(pairs.take_while(|&(kind, _)| kind != libc::AT_NULL).collect())
    }

    /// Copies memory of the process.
    pub fn get(&self, at: usize, into: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(into, at as u64)
    }

    /// Writes memory of the process.
    pub fn put(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, at as u64)
    }
}
