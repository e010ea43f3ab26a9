//! Threads are not bound to processors.

pub struct Follow;

impl Follow {
    pub fn nobody() -> Follow {
        Follow
    }

    pub fn where_it_pays() -> Follow {
        Follow
    }

    pub fn is_there(&self) -> bool {
        false
    }

    pub fn wants_ticks(&self) -> bool {
        false
    }

    pub fn fault(&mut self, _thread: u32) {}

    pub fn other(&mut self, _count: usize) {}

    pub fn tick(&mut self) {}

    #[allow(dead_code, reason = "a child's part needs a process of its own")]
    pub fn forget(&mut self) {}
}
