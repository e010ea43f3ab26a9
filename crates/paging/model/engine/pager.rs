//! The program's side of the pager, which makes requests. The pager's thread is a run's own here.

use crate::mailbox::Mailbox;

pub(crate) struct Pager {
    pub(crate) mailbox: &'static Mailbox,
    pub(crate) block: usize,
}
