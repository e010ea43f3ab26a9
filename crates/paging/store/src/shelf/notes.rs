//! Notes on operations, by their numbers.

/// A store's notes on its operations, by their numbers: a place for each number that was ever used.
pub struct Notes<T>(Vec<Option<T>>);

impl<T> Default for Notes<T> {
    fn default() -> Self {
        Notes(Vec::new())
    }
}

impl<T> Notes<T> {
    /// Notes `what` for the operation.
    pub fn put(&mut self, id: u32, what: T) {
        let index = id as usize;
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        debug_assert!(self.0[index].is_none(), "operation {id} is under way already");
        self.0[index] = Some(what);
    }

    /// Takes the note for the operation, which has ended.
    pub fn take(&mut self, id: u32) -> Option<T> {
        self.0.get_mut(id as usize)?.take()
    }

    /// The note for the operation.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.0.get_mut(id as usize)?.as_mut()
    }

    /// Notes `what` under a free number.
    pub fn add(&mut self, what: T) -> u32 {
        match self.0.iter().position(Option::is_none) {
            Some(index) => {
                self.0[index] = Some(what);
                index as u32
            }
            None => {
                self.0.push(Some(what));
                self.0.len() as u32 - 1
            }
        }
    }

    /// All notes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    /// Forgets all: in the child of a fork.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
