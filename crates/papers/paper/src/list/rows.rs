//! The rows of `terapage paper list`.

/// A figure, a table or a claim.
pub struct Row {
    /// The number of the figure or table, or where the paper makes the claim.
    pub figure: &'static str,
    /// What the figure shows.
    pub what: &'static str,
    /// The command that repeats the measurement or simulation.
    pub command: &'static str,
    /// Programs that the command needs (`ONE or OTHER`: either will do), or `root`.
    pub needs: &'static [&'static str],
    /// The experiment that measures the row's values; empty for simulations.
    pub experiment: &'static str,
    /// The experiment's published values that belong to this row, by their figure.
    pub figures: &'static [&'static str],
    /// The findings that belong to this row.
    pub findings: &'static [&'static str],
    /// The experiment in which another tool is compared with the lab; empty if there is none.
    pub checks: &'static str,
    /// Published values that are in no experiment and no finding.
    pub published: &'static str,
    /// The values here, of what is simulated, or of what cannot be measured.
    pub here: &'static str,
    /// Why the values differ, in a sentence.
    pub difference: &'static str,
}

const NONE: Row = Row {
    figure: "",
    what: "",
    command: "",
    needs: &[],
    experiment: "",
    figures: &[],
    findings: &[],
    checks: "",
    published: "",
    here: "",
    difference: "",
};

/// The papers and their rows; then other tools and theory, with which the lab and the simulators
/// were compared.
pub const PAPERS: [(&str, &[Row]); 6] = [
    ("Midorikawa, Tan 2013, on a bus-attached SSD for data larger than memory", MIDORIKAWA),
    ("Martin (Linux.com) 2008, on an SSD against SATA disks and RAID, by Bonnie++", MARTIN),
    ("Teramem 2009, on swapping to the memory of other machines", TERAMEM),
    ("Fukuchi, Sakaki, Matsui, Takeuchi, on SSDs of SCM before four kinds of NAND", FUKUCHI),
    ("Sato, Kondo, Kiyota, on Linux's I/O stack: SCSI and NVMe at one storage array", SATO),
    (
        "Other tools and theory: our value over theirs, once (November 2026, two processors), or last here",
        TOOLS,
    ),
];

const MIDORIKAWA: &[Row] = &[
    Row {
        figure: "Fig 1",
        what: "bandwidth of three devices",
        command: "terapage lab run devices",
        needs: &["root", "mkfs.ext4"],
        experiment: "devices",
        figures: &["Midorikawa, Tan 2013 Fig 1"],
        difference: "this machine's device is not an ioDrive2, and the other two are loops throttled to rates of today.",
        ..NONE
    },
    Row {
        figure: "Fig 2",
        what: "the same, times the hard disk",
        command: "terapage lab run devices",
        needs: &["root", "mkfs.ext4"],
        experiment: "devices",
        figures: &["Midorikawa, Tan 2013 Fig 2"],
        findings: &["midorikawa-devices"],
        difference: "the hard disk is throttled to 120 requests/s and 180 MiB/s, and knows no seeks by distance.",
        ..NONE
    },
    Row {
        figure: "Fig 3",
        what: "read and write against mapped files, a file that fits into memory",
        command: "terapage lab run raw",
        needs: &["root"],
        experiment: "raw",
        figures: &["Midorikawa, Tan 2013 Fig 3"],
        findings: &["midorikawa-mmap-in-memory", "midorikawa-async"],
        difference: "reads of a file in memory measure memory; MS_ASYNC has done nothing since Linux 2.6.19.",
        ..NONE
    },
    Row {
        figure: "Fig 4",
        what: "the same, a file larger than memory",
        command: "terapage lab run raw",
        needs: &["root"],
        experiment: "raw",
        figures: &["Midorikawa, Tan 2013 Fig 4"],
        findings: &[
            "midorikawa-mmap-collapses",
            "midorikawa-mmap-any-size",
            "midorikawa-rw-unchanged",
            "midorikawa-mmap-sequential",
        ],
        difference: "what a mapped file reaches from end to end is what the kernel reads ahead, and how late the device answers.",
        ..NONE
    },
    Row {
        figure: "Fig 5, 6",
        what: "STREAM beyond memory, by swap on two devices and by a mapped file",
        command: "terapage lab run stream",
        needs: &["root", "mkfs.ext4"],
        experiment: "stream",
        figures: &["Midorikawa, Tan 2013 Fig 5", "Midorikawa, Tan 2013 Fig 6"],
        findings: &["midorikawa-mmap-beats-swap", "midorikawa-swap-factor", "midorikawa-mmap-factor"],
        difference: "swap reads ahead by mapping today, and the SATA SSD is a throttled loop; the passes of triad alone, after the first touch, are lab run arrays.",
        ..NONE
    },
    Row {
        figure: "Fig 7 to 10",
        what: "a stencil with half its memory, many threads and one",
        command: "terapage lab run stencil",
        needs: &["root"],
        experiment: "stencil",
        figures: &["Midorikawa, Tan 2013 Fig 7-10"],
        findings: &[
            "midorikawa-compute-decides",
            "midorikawa-threads-suffer",
            "midorikawa-one-thread-15",
            "midorikawa-stencil-mmap-swap",
        ],
        difference: "16 threads there; few processors make computing the bound, and hide paging.",
        ..NONE
    },
    Row {
        figure: "Fig 11 to 13",
        what: "Himeno's benchmark with 29 % of its memory: worse than the stencil",
        command: "terapage lab run poisson stencil",
        needs: &["root"],
        experiment: "poisson",
        findings: &["midorikawa-himeno-worse"],
        difference: "the lab's kernel has no residual and is vectorised: in memory it is 5 to 6 times as fast as a plain C Himeno, so its slow-downs are as much larger.",
        ..NONE
    },
    Row {
        figure: "section 4",
        what: "several devices as RAID",
        command: "terapage lab run raid",
        needs: &["root", "mkfs.ext4"],
        experiment: "raid",
        findings: &["midorikawa-raid"],
        difference: "the paper expects it and does not measure it; both devices are throttled loops on one, with a store on each in turns.",
        ..NONE
    },
    Row {
        figure: "CCGrid 2015, PACRIM 2017",
        what: "temporal blocking, the authors' next step",
        command: "terapage lab run temporal",
        needs: &["root"],
        experiment: "temporal",
        figures: &["CCGrid 2015", "PACRIM 2017"],
        findings: &["midorikawa-temporal"],
        difference: "there by asynchronous I/O of the program's own, here by hints to a pager.",
        ..NONE
    },
];

const BONNIE: &[&str] = &["root", "bonnie++", "mkfs.ext3", "mkfs.xfs", "mkfs.btrfs"];

const MARTIN: &[Row] = &[
    Row {
        figure: "chart 1",
        what: "block output, and creating and deleting files, by file system",
        command: "terapage paper run bonnie",
        needs: BONNIE,
        experiment: "bonnie",
        findings: &[
            "martin-xfs-output",
            "martin-xfs-create",
            "martin-xfs-delete",
            "martin-writeback",
            "martin-lazy-count",
        ],
        difference: "the chart has no numbers; nobh is accepted and dropped, nobarrier of XFS is gone, and files are synced here.",
        ..NONE
    },
    Row {
        figure: "text",
        what: "barriers make the metadata of XFS ten times as slow",
        command: "terapage paper run bonnie",
        needs: BONNIE,
        experiment: "bonnie",
        findings: &["martin-barriers"],
        difference: "XFS cannot be mounted without barriers since 4.19, so ext4 is compared.",
        ..NONE
    },
    Row {
        figure: "chart 2",
        what: "random seeks: SSD, one disk, six disks as RAID-6",
        command: "terapage paper run bonnie",
        needs: BONNIE,
        experiment: "bonnie",
        figures: &["Martin"],
        findings: &["martin-seeks", "martin-raid-seeks"],
        difference: "an SSD of today does some 100,000; the disks are throttled loops of 100 requests/s each.",
        ..NONE
    },
    Row {
        figure: "chart 3",
        what: "block transfer: SSD, one disk, six disks as RAID-6",
        command: "terapage paper run bonnie",
        needs: BONNIE,
        experiment: "bonnie",
        findings: &["martin-raid", "martin-alike"],
        difference: "a throttled loop has the rate that it is given, so only one against six is judged.",
        ..NONE
    },
    Row {
        figure: "text",
        what: "what the same money buys",
        command: "terapage paper run bonnie",
        needs: BONNIE,
        findings: &["martin-money"],
        published: "32 GB for 500 USD, 750 GB for 130 USD, 60 times",
        here: "from these prices for each USD: one disk 90 times, RAID-5 of four 68, RAID-6 of six 60",
        difference: "the article counts 2 TB as RAID-5 for 500 USD; --prices FILE.toml has a table of your own prices.",
        ..NONE
    },
];

const FAR: &[&str] = &["valkey-server or redis-server"];

const TERAMEM: &[Row] = &[
    Row {
        figure: "Fig 1",
        what: "network bandwidth by transfer size",
        command: "terapage lab run transfer --far",
        needs: FAR,
        experiment: "transfer",
        figures: &["Teramem Fig 1"],
        findings: &["teramem-small-transfers"],
        difference: "Myrinet there; TCP to this machine here, or to a server that --far names.",
        ..NONE
    },
    Row {
        figure: "Fig 3",
        what: "sequential read of 64 GB with 1 GB, and two placements",
        command: "terapage lab run transfer scan --far",
        needs: FAR,
        experiment: "transfer",
        figures: &["Teramem Fig 3"],
        findings: &["teramem-faster-than-disk", "teramem-round-robin"],
        difference: "an SSD is no SATA disk of 2009: it may be as fast as the network.",
        ..NONE
    },
    Row {
        figure: "Fig 3",
        what: "the disk beside it",
        command: "terapage lab run scan --far",
        needs: FAR,
        experiment: "scan",
        figures: &["Teramem Fig 3"],
        difference: "58.9 MB/s was a disk of 2009.",
        ..NONE
    },
    Row {
        figure: "Fig 4",
        what: "latency of a page-in by block",
        command: "terapage lab run latency --far",
        needs: FAR,
        experiment: "latency",
        figures: &["Teramem Fig 4"],
        findings: &["teramem-latency"],
        difference: "the deviation is that of the machine's scheduler: a busy one has more.",
        ..NONE
    },
    Row {
        figure: "Fig 5",
        what: "stride access by block",
        command: "terapage lab run stride",
        needs: &["root"],
        experiment: "stride",
        figures: &["Teramem Fig 5"],
        findings: &[
            "teramem-large-blocks",
            "teramem-small-blocks",
            "teramem-middle-blocks",
            "teramem-middle-blocks-lose",
            "teramem-block-factor",
        ],
        difference: "neighbours are read ahead here, which makes small blocks lose less.",
        ..NONE
    },
    Row {
        figure: "Fig 6",
        what: "GNU sort of 600 MB by memory",
        command: "terapage lab run sort --far",
        needs: &["root", "valkey-server or redis-server"],
        experiment: "sort",
        figures: &["Teramem Fig 6"],
        findings: &["teramem-sort", "teramem-sort-swap", "teramem-collapse"],
        difference: "sort takes 1.66 GB here and 3.3 GB there, so budgets are shares, and swap is on an SSD. 27 TB are 8,000 times its data: a recording of today's sort (advise --keep, 60 MB of text), replayed with 15 % of the memory by LRU and by FIFO, pages in at least 1.7 times its data, so nothing shows that it collapses, and a run that takes 10 minutes is ended.",
        ..NONE
    },
    Row {
        figure: "Fig 7",
        what: "GNU sort of 1 GB by block, LRU and FIFO",
        command: "terapage lab run sort-blocks --far",
        needs: FAR,
        experiment: "sort-blocks",
        figures: &["Teramem Fig 7"],
        findings: &["teramem-lru-fifo", "teramem-best-block"],
        difference: "a sixth of the memory there, two fifths here: with a sixth today's sort hardly ends.",
        ..NONE
    },
];

const FUKUCHI: &[Row] = &[
    Row {
        figure: "Table 1",
        what: "the chips' parameters",
        command: "terapage paper run fukuchi-fit",
        published: "not in the text that was available",
        here: "3D CT TLC: program 700 us, read 80 us, fitted to the gains of Table 2",
        difference: "700 us is published for such chips, and 50 us for the read; the gains do not tell read from bus time.",
        ..NONE
    },
    Row {
        figure: "Fig 3",
        what: "IOPS of four kinds of NAND by volume",
        command: "terapage paper run fukuchi fig3",
        published: "3D CT TLC the best except for prxy_1; 2D FG TLC the worst; 3D FG TLC falls by (or to) 54 %",
        here: "3D CT TLC the best except for prxy_1; 2D FG TLC not the worst for prxy_1 and src2_1; falls by up to 54 %",
        difference: "the volumes are synthetic unless --trace names the real ones.",
        ..NONE
    },
    Row {
        figure: "Table 2",
        what: "the gains of 3D CT TLC over 2D FG MLC",
        command: "terapage paper run fukuchi table2",
        published: "+6.7, +7.1, +5.3, +6.4, -0.1, +1.9, +3.6 %",
        here: "+6.3, +6.7, +5.9, +6.1, -0.2, +1.9, +3.7 %",
        difference: "seven values were fitted to these seven gains, so that they agree proves nothing: NOT ROBUST.",
        ..NONE
    },
    Row {
        figure: "Fig 4, 5",
        what: "one characteristic of 3D CT TLC at a time",
        command: "terapage paper run fukuchi fig5",
        published: "block size hardly matters, latency up to 6.0 %, the write unit little except for proj_3",
        here: "block size -1.8 % at most, latency up to +6.4 %, the write unit costs up to 63.9 % (proj_0)",
        difference: "reads wait for programs here: if they suspend them (--set precondition=steady --set suspend=yes --set dies=8), the write unit costs 5.9 % at most, except for web_1 (10 %), and latency gives more; no value tried makes proj_3 the exception.",
        ..NONE
    },
    Row {
        figure: "Fig 6",
        what: "the gain against the share of reads at the flash",
        command: "terapage paper run fukuchi fig6",
        published: "negative correlation",
        here: "-0.58",
        difference: "the paper gives no number.",
        ..NONE
    },
];

const SATO: &[Row] = &[
    Row {
        figure: "Fig 5",
        what: "CPU use against IOPS",
        command: "terapage paper run sato fig5",
        findings: &["sato-twice"],
        published: "SCSI about twice NVMe",
        here: "1.66 times at 200 kIOPS, 1.98 at 800",
        difference: "a model, whose costs were adjusted to the report's text; its kernel path is gone.",
        ..NONE
    },
    Row {
        figure: "Fig 6",
        what: "busy time for an I/O against IOPS",
        command: "terapage paper run sato fig6",
        published: "SCSI rises, peaks at 600 to 900 kIOPS, falls from 1000 on; NVMe nearly flat, a little up; user time equal",
        here: "SCSI +11 % to 900 kIOPS, -6 % at 1250; NVMe -10 % from 200 to 900 kIOPS; user time 0.81 us, and 0.82 to 0.92 us with one I/O in a call",
        difference: "NVMe's fall is the model's: at a higher rate a thread sleeps less between two calls, and pays less for waking.",
        ..NONE
    },
    Row {
        figure: "Fig 7",
        what: "the rate at each multiplicity",
        command: "terapage paper run sato fig7",
        findings: &["sato-multiplicity"],
        published: "at 2 to 4 I/Os in a call NVMe up to 80 kIOPS more than SCSI",
        here: "72 to 77 kIOPS more",
        difference: "five threads were fitted to the rates that the report reached.",
        ..NONE
    },
    Row {
        figure: "section 4",
        what: "the prediction for multi-queue SCSI",
        command: "terapage paper run sato predict",
        findings: &["sato-multi-queue"],
        published: "close to NVMe, slightly behind",
        here: "1.18 times NVMe's CPU at 700 kIOPS (1.11 to 1.26)",
        difference: "the report predicts and does not measure; no CPU spins at a lock in the model either.",
        ..NONE
    },
    Row {
        figure: "section 4",
        what: "the same, as instructions of today's kernel",
        command: "terapage paper run stack-guest",
        needs: &["qemu-system-x86_64"],
        published: "close to NVMe, slightly behind",
        here: "1.33 to 1.45 times NVMe's instructions",
        difference: "instructions of an emulated machine are not cycles, and nothing contends there.",
        ..NONE
    },
    Row {
        figure: "Fig 5 to 7",
        what: "what an I/O costs in this machine's kernel",
        command: "terapage paper run stack-measure",
        needs: &["root"],
        experiment: "stack-measure",
        figures: &["Sato et al."],
        difference: "7.7 us are a bound (20,000 cycles for everything), and SCSI cannot be set against NVMe here. The model that stack-calibrate fits to this machine reaches less than the measured rate between its fitted depths (once -14 % with 16 reads, -22 % with 8): it takes the highest rate as the device's own, although with reads that are reported together this rate contains one latency for each batch.",
        ..NONE
    },
    Row {
        figure: "anchors",
        what: "results of other authors",
        command: "terapage paper run sato anchors",
        published: "mq-deadline 879 kIOPS at 94 % contention; BFQ 567 at 96 %; io_uring, polled, 2,600 and 290 with 128 and 1 in flight; an O_DIRECT read of NVMe 10,000 to 20,000 cycles",
        here: "mq-deadline 883 at 93.9 %; BFQ 566 at 94.9 %; io_uring 2,598 and 290; O_DIRECT 14,372 cycles",
        difference: "the rates and the first contention were fitted, so only BFQ's contention and the cycles test the model.",
        ..NONE
    },
];

/// The name of theory among the tools.
pub const THEORY: &str = "queueing theory";

pub const TOOLS: &[Row] = &[
    Row {
        figure: "fio 3.33",
        what: "reads and writes of a file by the same calls",
        command: "terapage lab run raw",
        needs: &["root", "fio"],
        experiment: "raw",
        checks: "raw",
        published: "1, within 5 %",
        difference: "fio's own work is subtracted, as measured on a device that does nothing; fio against itself differs by up to 2.9 on a busy machine.",
        ..NONE
    },
    Row {
        figure: "fio 3.33",
        what: "IOPS and time of an I/O with 1 to 32 reads in flight, and at a fixed rate",
        command: "terapage paper run stack-measure",
        needs: &["root", "fio"],
        published: "1",
        here: "IOPS 1.00 to 1.25, processor time 0.61 to 0.80, median time 0.86 to 1.12; at 10,000 a second the rate 1.00 and the median from when a read was due 1.7 to 3.5",
        difference: "fio counts from the submission: the lab shows that median too (p50, from submission), and that from when a read was due, of which late wake-ups are part.",
        ..NONE
    },
    Row {
        figure: "likwid-bench, STREAM",
        what: "triad in memory",
        command: "terapage lab run arrays",
        needs: &["likwid-bench"],
        experiment: "arrays",
        checks: "arrays",
        published: "1, within 5 %",
        difference: "a STREAM written from its description, on one thread: 1.13 to 1.16 of its mean and 0.96 of its best on a busy machine.",
        ..NONE
    },
    Row {
        figure: "Himeno",
        what: "MFLOPS of Jacobi's iteration in memory",
        command: "terapage lab run poisson",
        needs: &["root"],
        published: "1",
        here: "5.3 to 6",
        difference: "against a plain C Himeno written from its description (gcc 12 -O3); the lab's loop is vectorised, and has no residual: 32 of 34 operations.",
        ..NONE
    },
    Row {
        figure: "bonnie++ 2.00a",
        what: "write and rewrite on the same file system",
        command: "terapage paper run bonnie",
        needs: BONNIE,
        published: "1",
        here: "0.86 and 0.94",
        difference: "the lab runs bonnie++ itself, so that this is the scatter between two runs.",
        ..NONE
    },
    Row {
        figure: "MQSim (7ec40e3)",
        what: "mean latency of 8 KiB at random on its own example's device",
        command: "terapage sim ssd --nand mqsim-mlc --cache none --capacity 478G --set channels=8 TRACE",
        published: "1",
        here: "reads 1.08, 1.00, 0.74 at depth 1, 8, 32 (0.90 with 4 dies); writes 0.15 to 0.48",
        difference: "MQSim's cache of slow DRAM bounds writes at 200 MB/s, and it uses fewer dies at a time.",
        ..NONE
    },
    Row {
        figure: "libCacheSim (aa0fc40)",
        what: "misses of 17 policies",
        command: "terapage paper run ratios",
        published: "1",
        here: "exactly 1 for lru, fifo, clock, 2q, s3fifo, sieve, arc, slru, lfu, gdsf and the optimum; lirs 0.996 to 1.000, lfuda 0.959 to 1.045, wtinylfu 0.901 to 1.006, lhd 0.969 to 1.012",
        difference: "docs/sim-cache.md says which rule each of the others has there; tests have libCacheSim's lfuda and wtinylfu, with their misses.",
        ..NONE
    },
    Row {
        figure: THEORY,
        what: "far memory against mean value analysis of a closed network, six loads",
        command: "terapage paper run ratios",
        published: "1",
        here: "0.998 to 1.003 of the rate, 0.994 to 1.002 of the mean wait",
        difference: "what is left is the chance of one run of 8 s; the command has four loads of one server.",
        ..NONE
    },
    Row {
        figure: THEORY,
        what: "the I/O stack against M/D/1, M/M/1 and Little's law, with 1 to 128 calls",
        command: "terapage paper run ratios",
        published: "1",
        here: "within 2 %",
        difference: "the command has M/D/1; tests assert all three (crates/papers/stack/tests/queueing.rs).",
        ..NONE
    },
    Row {
        figure: THEORY,
        what: "write amplification of greedy collection under uniform random writes",
        command: "terapage paper run ratios",
        published: "7.17, 3.89, 2.48 with 7.7, 15.6, 28.1 % of spare flash",
        here: "7.23, 3.89, 2.50",
        difference: "asserted by tests (crates/simulation/ssd/tests/closed_forms.rs).",
        ..NONE
    },
];
