//! Settings whose value is one of a few names.

/// A type whose values have names.
pub(crate) trait Named: Copy + 'static {
    /// All values.
    const VALUES: &'static [Self];
    /// Their names.
    const TEXTS: &'static [&'static str];

    /// The value's name.
    fn text(self) -> &'static str;
}

macro_rules! choices {
    ($(#[$doc:meta])* $type:ident { $($(#[$about:meta])* $value:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$about])* $value,)*
        }

        impl $type {
            /// All values.
            pub const ALL: &[$type] = &[$($type::$value,)*];
            /// The names of all values.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// The value's name in the setting.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$value => $name,)*
                }
            }
        }

        impl Named for $type {
            const VALUES: &'static [$type] = $type::ALL;
            const TEXTS: &'static [&'static str] = $type::NAMES;

            fn text(self) -> &'static str {
                self.name()
            }
        }
    };
}

choices! {
    /// Which allocations are paged.
    Heap {
        /// Every allocation, small objects too.
        All = "all",
        /// Allocations of 128 KiB and more.
        Large = "large",
        /// No allocations; only mmap and static arrays.
        Off = "off",
    }
}

choices! {
    /// Which programs a host loads, and so pages.
    Hosted {
        /// Programs that load no library: static executables, Go, musl.
        On = "on",
        /// Dynamic programs, too: then all their calls are heard.
        All = "all",
        /// None.
        Off = "off",
    }
}

choices! {
    /// How stores are read and written.
    Io {
        /// By io_uring; if that is forbidden, by libaio; if that is not available either, by
        /// threads.
        Auto = "auto",
        /// By io_uring only.
        Uring = "uring",
        /// By libaio.
        Aio = "aio",
        /// By threads.
        Threads = "threads",
    }
}

choices! {
    /// How pages get into and out of a program.
    Mechanism {
        /// Pages are moved, if the kernel can do that.
        Move = "move",
        /// They are copied.
        Copy = "copy",
    }
}

choices! {
    /// How blocks are spread over several stores.
    Placement {
        /// One store is filled, then the next.
        Simple = "simple",
        /// The stores take turns.
        RoundRobin = "round-robin",
    }
}
