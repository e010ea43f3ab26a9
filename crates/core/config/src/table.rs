//! The table of settings. An entry has everything about a setting. From the table come the flags of
//! `terapage run`, their help and their completions, the variables, the keys of the configuration
//! file, the fields of [`Partial`] and of [`Settings`], and the table in docs/configuration.md.
//! docs/design/extending.md adds an entry step by step.

use crate::resolve::{self, Context};
use crate::setting::{Choices, Flag, Kind, Setting};
use crate::value::{self, Written};
use crate::{Budget, Codec, Error, Faults, Group, Heap, Hosted, Io, Mechanism, Memory, Placement};
use crate::{Size, StoreSize, StoreSpec, Stores};
use std::ffi::OsString;
use std::path::PathBuf;
use terapage_policy::{prefetch, replacement};

/// The default fields of an entry.
const PLAIN: Setting = Setting {
    name: "",
    variable: "",
    default: None,
    default_note: None,
    flag: Flag::Value("TEXT"),
    short: None,
    help: "",
    kind: Kind::Text,
    choices: Choices::Any,
    run_only: false,
    hidden: false,
    group: Group::Advanced,
    set: |_, _| Ok(()),
};

/// The type of a field in [`Settings`].
macro_rules! resolved {
    ($given:ty) => {
        $given
    };
    ($given:ty, $resolved:ty) => {
        $resolved
    };
}

/// The function that makes a field of [`Settings`] from a field of [`Partial`].
macro_rules! resolver {
    () => {
        resolve::given_or_default
    };
    ($resolve:path) => {
        $resolve
    };
}

/// An entry is
///
/// ```text
/// /// What the value means.
/// field: Type {
///     read: a function that reads the value from a text,
///     name: "key", variable: "TERAPAGE_KEY", default: Some("text"),
///     other fields of `Setting`
/// }
/// ```
///
/// The type implements [`Written`]. `field: Type => Other { read: ..., resolve: ..., ... }`: the
/// field of [`Settings`] has another type than the given value, and `resolve` converts the value.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $field:ident: $given:ty $(=> $resolved:ty)? {
            read: $read:path,
            $(resolve: $resolve:path,)?
            name: $name:literal,
            variable: $variable:literal,
            default: $default:expr,
            $($entry:tt)*
        }
    )*) => {
        /// All settings, in the order of the documents.
        pub static SETTINGS: &[Setting] = &[$(Setting {
            name: $name,
            variable: $variable,
            default: $default,
            set: |partial, text| {
                partial.$field = Some($read(text)?);
                Ok(())
            },
            $($entry)*
            ..PLAIN
        },)*];

        /// Settings of one layer (flags, variables, a file): any may be missing.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Partial {
            $($(#[$doc])* pub $field: Option<$given>,)*
        }

        /// All settings, resolved.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $($(#[$doc])* pub $field: resolved!($given $(, $resolved)?),)*
        }

        impl Partial {
            /// This layer, with missing settings taken from `lower`.
            pub fn or(self, lower: Partial) -> Partial {
                Partial { $($field: self.$field.or(lower.$field),)* }
            }

            /// Fills in the defaults.
            pub(crate) fn with_defaults(
                self,
                stores: &dyn Stores,
                get: &dyn Fn(&str) -> Option<OsString>,
            ) -> Result<Settings, Error> {
                let context = Context { stores, get };
                Ok(Settings {
                    $($field: resolver!($($resolve)?)(
                        self.$field,
                        || value::default($name, $default, $read),
                        &context,
                    )?,)*
                })
            }
        }

        impl Settings {
            /// The variables that pass these settings to the library in a program. Other variables
            /// of [`SETTINGS`] must be removed.
            pub fn to_variables(&self) -> Vec<(&'static str, OsString)> {
                let variables = [$(($variable, self.$field.written()),)*];
                variables.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
            }
        }
    };
}

settings! {
    /// The budget: of all processes together.
    memory: Memory => Budget {
        read: value::memory,
        resolve: resolve::budget,
        name: "memory",
        variable: "TERAPAGE_MEMORY",
        default: Some("auto"),
        group: Group::Memory,
        flag: Flag::Value("SIZE|PERCENT|auto"),
        short: Some('m'),
        kind: Kind::Number,
        help: "Memory that the data of the program and of its children may occupy together: 4G, \
               500M, 50% of the memory of the machine or container, or auto: as much as is free \
               at any time",
    }

    /// Each process has all of the memory for itself.
    per_process: bool {
        read: value::boolean,
        name: "per-process",
        variable: "TERAPAGE_PER_PROCESS",
        default: Some("false"),
        group: Group::Memory,
        flag: Flag::On,
        kind: Kind::Switch,
        help: "Give each process a budget of --memory, instead of one budget for all",
    }

    /// Stores; never empty once the settings are resolved.
    stores: Vec<StoreSpec> => Vec<StoreSpec> {
        read: value::stores,
        resolve: resolve::stores,
        name: "store",
        variable: "TERAPAGE_STORE",
        default: None,
        group: Group::Stores,
        default_note: Some("see [Store](#store)"),
        flag: Flag::Value("STORE"),
        short: Some('s'),
        kind: Kind::List,
        choices: Choices::Path,
        help: "Where paged-out data is stored: a directory, an empty file, a block device (its \
               content is lost) or, except for adopted programs, a memory server, as in \
               valkey://HOST:6379. mirror:A+B writes to each of them, tier:A+B to the first with \
               room; a tier can be memory, as in tier:ram:2G+/mnt/nvme0. Repeat it for several \
               stores",
    }

    /// How blocks are spread over the stores.
    placement: Placement {
        read: value::name::<Placement>,
        name: "placement",
        variable: "TERAPAGE_PLACEMENT",
        default: Some("simple"),
        group: Group::Stores,
        flag: Flag::Value("HOW"),
        choices: Choices::Names(Placement::NAMES),
        help: "How blocks are spread over several --store: simple (fill one, then the next) or \
               round-robin",
    }

    /// Whether all stores get only ciphertext, or only servers whose URLs ask for it. `None`: only
    /// servers that others may read.
    encrypt: bool => Option<bool> {
        read: value::boolean,
        resolve: resolve::as_given,
        name: "encrypt",
        variable: "TERAPAGE_ENCRYPT",
        default: None,
        group: Group::Stores,
        default_note: Some("as [far.md](far.md#encryption) says"),
        flag: Flag::On,
        kind: Kind::Switch,
        help: "Encrypt the data in all stores, with a key that only the program's process has. \
               Data on a memory server that others may see is encrypted unless encrypt=no",
    }

    /// How blocks are compressed on their way to all stores; `None` is `off`.
    compress: Option<Codec> {
        read: value::codec,
        name: "compress",
        variable: "TERAPAGE_COMPRESS",
        default: Some("off"),
        group: Group::Stores,
        flag: Flag::Value("HOW"),
        help: "Compress the data in the stores: lz4, zstd or zstd:LEVEL (1 to 9), or off",
    }

    /// Bytes that the store may use, and whether an allocation that it could not hold is refused.
    store_size: StoreSize {
        read: value::store_size,
        name: "store-size",
        variable: "TERAPAGE_STORE_SIZE",
        default: Some("auto"),
        group: Group::Stores,
        flag: Flag::Value("SIZE[,strict]"),
        kind: Kind::Number,
        choices: Choices::Names(&["auto", "auto,strict"]),
        help: "Bytes that the store may occupy, or auto: as much as is needed. With ,strict an \
               allocation that the store could not hold is refused (ENOMEM)",
    }

    /// Bytes of a block; `None` is `auto`.
    block: Option<Size> {
        read: value::block,
        name: "block",
        variable: "TERAPAGE_BLOCK",
        default: Some("auto"),
        flag: Flag::Value("SIZE"),
        short: Some('b'),
        kind: Kind::Number,
        choices: Choices::Names(&[
            "auto", "4K", "8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M", "2M",
        ]),
        help: "Size of a block: a power of two from 4K to 2M, or auto: 16K, and 4K for a program \
               that touches scattered pages",
    }

    /// Replacement policy, one of `terapage_policy::replacement::NAMES`.
    policy: String {
        read: value::policy,
        name: "policy",
        variable: "TERAPAGE_POLICY",
        default: Some("auto"),
        flag: Flag::Value("NAME"),
        choices: Choices::Names(replacement::NAMES),
        help: "Which blocks are paged out first: {choices}",
    }

    /// Prefetch policy, one of `terapage_policy::prefetch::NAMES`.
    prefetch: String {
        read: value::policy,
        name: "prefetch",
        variable: "TERAPAGE_PREFETCH",
        default: Some("auto"),
        flag: Flag::Value("NAME"),
        choices: Choices::Names(prefetch::NAMES),
        help: "Which blocks are read ahead: {choices}",
    }

    /// Which allocations are paged.
    heap: Heap {
        read: value::name::<Heap>,
        name: "heap",
        variable: "TERAPAGE_HEAP",
        default: Some("all"),
        group: Group::Paged,
        flag: Flag::Value("WHICH"),
        choices: Choices::Names(Heap::NAMES),
        help: "Which allocations are paged: all, large (128 KiB and more) or off (only mmap and \
               static arrays)",
    }

    /// Whether mapped files are paged.
    files: bool {
        read: value::boolean,
        name: "files",
        variable: "TERAPAGE_FILES",
        default: Some("false"),
        group: Group::Paged,
        flag: Flag::On,
        kind: Kind::Switch,
        help: "Page files that the program maps to read, within the budget, if they do not fit \
               into it (docs/programs.md)",
    }

    /// Which programs are loaded by a host, and so paged.
    hosted: Hosted {
        read: value::name::<Hosted>,
        name: "static",
        variable: "TERAPAGE_STATIC",
        default: Some("on"),
        group: Group::Paged,
        flag: Flag::Value("WHICH"),
        choices: Choices::Names(Hosted::NAMES),
        help: "Which programs a host pages: on (static executables, Go, musl), all (dynamic \
               programs, too, if they map memory past the C library) or off (docs/host.md)",
    }

    /// The file for the counters, at the end, as JSON.
    stats: PathBuf => Option<PathBuf> {
        read: value::path,
        resolve: resolve::as_given,
        name: "stats",
        variable: "TERAPAGE_STATS",
        default: None,
        group: Group::Output,
        flag: Flag::Value("FILE"),
        choices: Choices::File,
        run_only: true,
        help: "Write the counters to a file at the end, as JSON",
    }

    /// The file for the block references.
    trace: PathBuf => Option<PathBuf> {
        read: value::path,
        resolve: resolve::as_given,
        name: "trace",
        variable: "TERAPAGE_TRACE",
        default: None,
        group: Group::Output,
        flag: Flag::Value("FILE"),
        choices: Choices::File,
        run_only: true,
        help: "Write the block references to a file",
    }

    /// The file in which the program's runs learn from each other.
    learn: PathBuf => Option<PathBuf> {
        read: value::path,
        resolve: resolve::as_given,
        name: "learn",
        variable: "TERAPAGE_LEARN",
        default: None,
        group: Group::Advanced,
        flag: Flag::Value("FILE"),
        choices: Choices::File,
        run_only: true,
        help: "Read ahead in the order of the last run, which the file records, and record this run there",
    }

    /// Whether to report each step on standard error.
    verbose: bool {
        read: value::boolean,
        name: "verbose",
        variable: "TERAPAGE_VERBOSE",
        default: Some("false"),
        group: Group::Output,
        flag: Flag::On,
        short: Some('v'),
        kind: Kind::Switch,
        run_only: true,
        help: "Report what happens on standard error",
    }

    /// How stores are read and written: `auto` is io_uring, or libaio if io_uring is forbidden.
    io: Io {
        read: value::name::<Io>,
        name: "io",
        variable: "TERAPAGE_IO",
        default: Some("auto"),
        hidden: true,
        choices: Choices::Names(Io::NAMES),
        help: "How stores are read and written",
    }

    /// Whether the bytes of a page-in are checked against the hash from the page-out.
    verify: bool {
        read: value::boolean,
        name: "verify",
        variable: "TERAPAGE_VERIFY",
        default: Some("true"),
        hidden: true,
        kind: Kind::Switch,
        help: "Check that bytes read from the store are those that were written",
    }

    /// With the default policy, threads whose blocks displace each other's take turns.
    turns: bool {
        read: value::boolean,
        name: "turns",
        variable: "TERAPAGE_TURNS",
        default: Some("on"),
        hidden: true,
        kind: Kind::Switch,
        flag: Flag::Value("WHICH"),
        help: "For measurements: whether threads that displace each other's blocks take turns",
    }

    /// Microseconds that the pager spins before it sleeps; `None`: the pager's default.
    spin_us: u64 => Option<u64> {
        read: value::number,
        resolve: resolve::as_given,
        name: "spin-us",
        variable: "TERAPAGE_SPIN_US",
        default: None,
        hidden: true,
        kind: Kind::Number,
        help: "For measurements: microseconds that the pager spins before it sleeps",
    }

    /// The smallest share of the frames that is kept ready, per mille; `None`: the pager's default.
    soft_per_mille: u64 => Option<u64> {
        read: value::per_mille,
        resolve: resolve::as_given,
        name: "soft-per-mille",
        variable: "TERAPAGE_SOFT_PER_MILLE",
        default: None,
        hidden: true,
        kind: Kind::Number,
        help: "For recordings: the least share of the frames that is kept ready, per mille",
    }

    /// Paging starts when more bytes than this are in use: a recording must see a program's first
    /// touches. `None`: when the job no longer lets the process grow without a pager.
    start_bytes: u64 => Option<u64> {
        read: value::number,
        resolve: resolve::as_given,
        name: "start-bytes",
        variable: "TERAPAGE_START_BYTES",
        default: None,
        hidden: true,
        kind: Kind::Number,
        help: "For recordings and tests: the bytes in use at which paging starts",
    }

    /// How pages get into and out of the program.
    mechanism: Mechanism {
        read: value::name::<Mechanism>,
        name: "mechanism",
        variable: "TERAPAGE_MECHANISM",
        default: Some("move"),
        hidden: true,
        choices: Choices::Names(Mechanism::NAMES),
        help: "For tests: copy pages on kernels that can move them: {choices}",
    }

    /// The faults of the stores.
    faults: Faults => Option<Faults> {
        read: value::faults,
        resolve: resolve::as_given,
        name: "faults",
        variable: "TERAPAGE_FAULTS",
        default: None,
        hidden: true,
        help: "For tests: how often each kind of fault occurs in the stores, as in \
               errors=1000,copy=1",
    }
}
