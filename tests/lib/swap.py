"""The kernel's swap beside Terapage: a memory cgroup with a limit, and a swap file or zram for what it lacks.

The kernel may kill a program of such a cgroup though swap is almost empty, because its reclaim gives up while pages
are still on their way to swap. A killed program says nothing of swap's speed. So the programs of these cgroups are
not killed: they wait, and go on once there is room. That is the best that swap can do.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time

from harness import Failed, Skipped, need, wait_for

ROOT = "/sys/fs/cgroup"
FIRST = 32000
"""The priority of the swap that is made here: the kernel uses it before the machine's own."""
STEP = 256 << 10
"""By so many bytes a limit is raised for a moment, so that those who wait for memory try again."""
MIB = 1 << 20


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))


class Group:
    """A memory cgroup, of either version, whose programs wait where the kernel would kill them.

    Version 1: the kernel's OOM killer is off (memory.oom_control), and a thread that the kernel tells of each wait for
    memory (cgroup.event_control) raises the limit for a moment. Version 2 cannot switch the killer off for a cgroup, but
    memory.high never calls it: the kernel reclaims, and delays those who use more.
    """

    def __init__(self, limit):
        self.limit = limit
        self.waits = 0
        self.full = ""
        self._over = False
        self._lock = threading.Lock()
        self._keeper = self._bell = None
        self.is_first, base = self._version()
        self.path = f"{base}/terapage-swap-{os.getpid()}"
        os.mkdir(self.path)
        try:
            if self.is_first:
                write(self._file("memory.limit_in_bytes"), limit)
                write(self._file("memory.oom_control"), 1)
                self._listen()
            else:
                write(self._file("memory.high"), limit)
        except OSError as why:
            os.rmdir(self.path)
            raise Skipped(f"no memory cgroup with a limit: {why}") from None

    @staticmethod
    def _version():
        if os.geteuid():
            raise Skipped("only root can make a cgroup and swap")
        if os.path.exists(f"{ROOT}/memory/memory.limit_in_bytes"):
            return True, f"{ROOT}/memory"
        if os.path.exists(f"{ROOT}/cgroup.subtree_control") and "memory" in read(f"{ROOT}/cgroup.subtree_control").split():
            return False, ROOT
        raise Skipped("there is no memory cgroup")

    def _file(self, name):
        return os.path.join(self.path, name)

    @property
    def enter(self):
        """The words that start a program in the cgroup."""
        return ["sh", "-c", f'echo $$ > "{self.path}/cgroup.procs" && exec "$@"', "sh"]

    def _listen(self):
        self._bell = os.eventfd(0)
        with open(self._file("memory.oom_control"), "rb") as control:
            write(self._file("cgroup.event_control"), f"{self._bell} {control.fileno()}")
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _keep(self):
        while True:
            os.eventfd_read(self._bell)
            if self._over:
                return
            self.waits += 1
            while not self._over and "under_oom 1" in read(self._file("memory.oom_control")):
                # To raise the limit wakes those who wait; to lower it reclaims for them.
                with self._lock, contextlib.suppress(OSError):
                    write(self._file("memory.limit_in_bytes"), self.limit + STEP)
                self.set_limit(self.limit)
                time.sleep(0.002)

    def set_limit(self, limit):
        """Sets the limit. Excess memory is reclaimed before this returns, if possible."""
        with self._lock:
            self.limit = limit
            for _ in range(100):
                try:
                    return write(self._file("memory.limit_in_bytes" if self.is_first else "memory.high"), limit)
                except OSError:
                    # Pages are on their way to swap.
                    time.sleep(0.005)
        return None

    def kills(self):
        """The number of its processes that the kernel has killed, and the kernel's message; "" if none."""
        with contextlib.suppress(OSError):
            lines = read(self._file("memory.oom_control" if self.is_first else "memory.events")).splitlines()
            killed = int(dict(line.split() for line in lines).get("oom_kill", 0))
            return f"the kernel killed {killed} of its processes: {said_last()}" if killed else ""
        return ""

    def kill(self):
        """Kills its processes."""
        for pid in procs_of(self.path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def gone(self):
        """Removes it, once its processes have ended."""
        with contextlib.suppress(Failed, OSError):
            wait_for(lambda: not procs_of(self.path), "the cgroup to be empty", timeout_s=30)
        if self._keeper:
            self._over = True
            os.eventfd_write(self._bell, 1)
            self._keeper.join()
            os.close(self._bell)
        with contextlib.suppress(OSError):
            os.rmdir(self.path)


def said_last():
    """The kernel's last message about a process that it killed because memory ran out."""
    told = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", check=False).stdout.splitlines()
    lines = [line for line in told if "out of memory" in line.lower() and "illed process" in line]
    return lines[-1].partition("] ")[2][:90] if lines else "dmesg has no line of it"


def procs_of(group):
    """The processes of a cgroup."""
    return read(f"{group}/cgroup.procs").split()


def swap_on(place):
    """Lets the kernel swap to a file or device, before all others."""
    need("mkswap", "swapon", "swapoff")
    rivals = [line.split() for line in read("/proc/swaps").splitlines()[1:]]
    if any(int(fields[-1]) >= FIRST for fields in rivals):
        raise Skipped(f"other swap comes first: {rivals}")
    subprocess.run(["mkswap", place], check=True, capture_output=True)
    done = subprocess.run(["swapon", "--priority", str(FIRST), place], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"swapon: {done.stderr.strip()}")


def swap_off(place):
    subprocess.run(["swapoff", place], capture_output=True, check=False)


@contextlib.contextmanager
def swap_group(place, limit, file_bytes):
    """A cgroup with a limit in bytes, and a swap file in `place`. Skipped if that is not available."""
    group = Group(limit)
    file = os.path.join(place, "swap-file")
    try:
        with open(file, "wb") as swap:
            os.fchmod(swap.fileno(), 0o600)
            os.posix_fallocate(swap.fileno(), 0, file_bytes)
        swap_on(file)
        yield group
    finally:
        group.gone()
        swap_off(file)
        with contextlib.suppress(OSError):
            os.remove(file)


class Zram:
    """Compressed swap in memory, on a separate device."""

    def __init__(self, size, limit):
        try:
            self.number = read("/sys/class/zram-control/hot_add")
        except OSError as why:
            raise Skipped(f"no zram in this kernel: {why}") from None
        self.device, self._files = f"/dev/zram{self.number}", f"/sys/block/zram{self.number}/"
        try:
            write(self._files + "disksize", size)
            write(self._files + "mem_limit", limit)
            swap_on(self.device)
        except BaseException:
            self.gone()
            raise

    def bytes(self):
        """Bytes of memory that it uses now."""
        return int(read(self._files + "mm_stat").split()[2])

    def peak(self):
        """The most bytes that it has used."""
        return int(read(self._files + "mm_stat").split()[4])

    def gone(self):
        """Turns it off, and removes it."""
        swap_off(self.device)
        with contextlib.suppress(OSError):
            write("/sys/class/zram-control/hot_remove", self.number)


@contextlib.contextmanager
def zram_group(total, swap_bytes):
    """A cgroup whose memory and compressed swap together are within `total` bytes: as the pool grows, the limit shrinks.

    If the data do not compress so far that this can be, the programs are killed, and `group.full` says what they took.
    """
    zram = Zram(swap_bytes, total - total // 16)
    try:
        group = Group(total)
        over = threading.Event()
        keeper = threading.Thread(target=_share, args=(group, zram, total, over), daemon=True)
        keeper.start()
        try:
            yield group
        finally:
            over.set()
            keeper.join()
            group.gone()
    finally:
        zram.gone()


def _share(group, zram, total, over):
    """Gives a cgroup the part of `total` bytes that a compressed swap leaves, until `over`."""
    while not over.wait(0.005):
        limit = total - zram.bytes()
        if limit <= total // 8:
            group.full = f"memory is full: what was swapped compresses to {zram.peak() // MIB} MiB or more"
            group.kill()
        elif abs(limit - group.limit) > total // 100:
            group.set_limit(limit)


def swapped_in():
    """Pages that the kernel has read from swap since the machine began."""
    fields = dict(line.split() for line in read("/proc/vmstat").splitlines())
    return int(fields.get("pswpin", 0))
