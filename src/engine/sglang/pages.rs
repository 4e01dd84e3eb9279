//! A decode's KV pages, and which of them a prefill may still be writing into.
//!
//! Pages that are given back while their transfer runs are *dirty*: the write lands in whatever request gets them next.
//! The mark stays until that request has them, so a wrong cancellation is seen for certain and not only when the race is
//! lost. Given back last, handed out first: the mark surfaces at once.

/// A fixed set of pages.
#[derive(Debug)]
pub(super) struct Pages {
    free: Vec<u32>,
    dirty: Vec<bool>,
    deferred: usize,
}

/// Pages handed out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) pages: Vec<u32>,
    /// How many of them another request's prefill may write into.
    pub(super) dirty: usize,
}

impl Pages {
    pub(super) fn new(count: u32) -> Self {
        Self { free: (0..count).rev().collect(), dirty: vec![false; count as usize], deferred: 0 }
    }

    /// `None` when there are not enough free ones now.
    pub(super) fn take(&mut self, count: u32) -> Option<Taken> {
        let rest = self.free.len().checked_sub(count as usize)?;
        let pages = self.free.split_off(rest);
        let dirty = pages.iter().filter(|&&page| std::mem::take(&mut self.dirty[page as usize])).count();
        Some(Taken { pages, dirty })
    }

    /// Back after use.
    pub(super) fn give_back(&mut self, pages: Vec<u32>) {
        self.free.extend(pages);
    }

    /// Back while a prefill may still write into them.
    pub(super) fn give_back_dirty(&mut self, pages: Vec<u32>) {
        for &page in &pages {
            self.dirty[page as usize] = true;
        }
        self.free.extend(pages);
    }

    /// Kept, although their request is over, until the write is.
    pub(super) fn defer(&mut self, count: usize) {
        self.deferred += count;
    }

    /// The write into deferred pages is over.
    pub(super) fn settle(&mut self, pages: Vec<u32>) {
        self.deferred -= pages.len();
        self.free.extend(pages);
    }

    /// Not free, deferred ones included.
    pub(super) fn used(&self) -> usize {
        self.dirty.len() - self.free.len()
    }

    pub(super) fn total(&self) -> usize {
        self.dirty.len()
    }

    pub(super) fn dirty(&self) -> usize {
        self.dirty.iter().filter(|&&dirty| dirty).count()
    }

    pub(super) fn deferred(&self) -> usize {
        self.deferred
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_given_back_dirty_are_reported_by_the_next_request_and_only_by_it() {
        let mut pages = Pages::new(4);
        let first = pages.take(2).unwrap();
        assert_eq!(first.dirty, 0);
        pages.give_back_dirty(first.pages);
        assert_eq!((pages.dirty(), pages.used()), (2, 0));
        let second = pages.take(3).unwrap();
        assert_eq!(second.dirty, 2);
        pages.give_back(second.pages);
        assert_eq!(pages.take(4).unwrap().dirty, 0);
    }

    #[test]
    fn deferred_pages_are_nobodys_until_the_write_is_over() {
        let mut pages = Pages::new(2);
        let taken = pages.take(2).unwrap();
        pages.defer(2);
        assert_eq!((pages.take(1), pages.deferred(), pages.used()), (None, 2, 2));
        pages.settle(taken.pages);
        assert_eq!((pages.deferred(), pages.take(2).map(|taken| taken.dirty)), (0, Some(0)));
    }
}
