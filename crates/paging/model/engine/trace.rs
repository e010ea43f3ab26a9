//! There is no trace here: its ring is checked separately.

#[derive(Clone, Copy)]
pub enum Kind {
    FirstTouch,
    FreshAhead,
    Present,
    MajorFault,
    MinorFault,
    PrefetchMarker,
    Prefetched,
    PutBack,
    PageOutDirty,
    PageOutClean,
    PageOutZero,
}

pub struct Recorder;

impl Recorder {
    pub fn events(&mut self, _kind: Kind, blocks: impl IntoIterator<Item = u32>) {
        blocks.into_iter().for_each(drop);
    }

    pub fn discard(&mut self, _block: u32, _count: u32) {}

    pub fn region(&mut self, _start: usize, _len: usize, _first: u32) {}

    #[allow(dead_code, reason = "a trace is ended by the pager")]
    pub fn end(self) {}
}
