//! Runtimes of languages that need special treatment: how each is recognised, what is done, and
//! why. The rows are [`JAVA`] and [`GO`].

/// Java, recognised by a library that the process has loaded, or by the program's name where the
/// loader's list of libraries cannot be asked.
///
/// - Reservations at named places are refused, as if the places were in use (preload,
///   `hooks/maps.rs`). Since version 21, Java names places for its heap, low addresses first. It
///   accepts any place in the end, and the arena's place is paged. Java with ZGC insists on its
///   places.
/// - The advice for shared memory names another collector (preload, `process/untracked.rs`), since
///   ZGC has its heap in shared memory, which is not paged.
pub const JAVA: Java = Java {
    loaded: b"/libjvm.so",
    program: "java",
    option_variables: ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"],
    shares_heap: "-XX:+UseZGC",
    heap_least: 1 << 20,
    shared_remedy: "Java's -XX:+UseZGC has its heap there: -XX:+UseG1GC is paged; --enforce limits all of it",
};

/// Go, recognised by a note in the executable.
///
/// - The program gets a host (`executable.rs`): the runtime maps memory by direct system calls.
/// - The first places for the heap are refused (host, `place.rs`). Go names some hundred places,
///   one after another, before it accepts any place. Serving each elsewhere, which Go would unmap
///   again, would take it milliseconds.
/// - The kernel maps the table of the heap's arenas (host, `place.rs`). The table is nearly empty;
///   unpaged, small Go programs need no pager.
pub const GO: Go = Go { note: b"Go\0\0", heap_least: 64 << 20, places_most: 1024, table: 32 << 20 };

/// What is known of Java.
pub struct Java {
    /// The end of the path of a library that a Java process has loaded.
    pub loaded: &'static [u8],
    /// The name of the program.
    pub program: &'static str,
    /// The variables from which Java takes options, beside its arguments.
    pub option_variables: [&'static str; 2],
    /// The option that puts the heap into shared memory.
    pub shares_heap: &'static str,
    /// The least bytes of a heap.
    pub heap_least: usize,
    /// What to do about shared memory that is not paged.
    pub shared_remedy: &'static str,
}

/// What is known of Go.
pub struct Go {
    /// A name in the notes of executables.
    pub note: &'static [u8],
    /// The bytes that are reserved at once for the heap.
    pub heap_least: usize,
    /// This many refused places are enough: then any place is accepted.
    pub places_most: usize,
    /// Bytes of the table of the heap's arenas, which has a word for each.
    pub table: usize,
}
