//! Edits of a body as segments: untouched stretches are slices of the one buffer, so the prompt is never copied and
//! two legs may share it (I6).
//!
//! A removed member takes exactly one adjoining comma with it: the one before it, or, while everything before it is
//! removed too, the one behind it. Appended members stand before the final `}`, because engines take the last of two
//! equal keys.

use bytes::Bytes;

use super::peek::{Member, Peek};

/// A body as the pieces that are written one after the other.
#[derive(Debug, Clone, Default)]
pub struct Segments {
    /// Nearly every body is one piece, which needs no list.
    first: Bytes,
    rest: Vec<Bytes>,
    len: usize,
}

impl From<Bytes> for Segments {
    fn from(body: Bytes) -> Self {
        Self { len: body.len(), first: body, rest: Vec::new() }
    }
}

impl Segments {
    /// Total length, bytes: the `Content-Length`.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order; none is empty unless the whole is.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// One copied buffer, for tests and for transports that cannot gather.
    pub fn to_vec(&self) -> Vec<u8> {
        self.iter().flat_map(|piece| piece.iter().copied()).collect()
    }

    fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.len += piece.len();
        if self.first.is_empty() {
            self.first = piece;
        } else {
            self.rest.push(piece);
        }
    }
}

/// The body without the members that clients may not set (I11). Without such members: the body itself, nothing done.
pub fn without_owned(body: &Bytes, peek: &Peek) -> Segments {
    if peek.owned().next().is_none() {
        return body.clone().into();
    }
    let mut splice = Splice::new(body, peek);
    for member in peek.owned() {
        splice.remove(member);
    }
    splice.finish()
}

/// Collects edits of one body. Members must come from the [`Peek`] of that body.
#[derive(Debug)]
pub struct Splice<'a> {
    body: &'a Bytes,
    count: usize,
    close: usize,
    removed: Vec<Member>,
    cuts: Vec<Cut>,
    appended: Vec<Bytes>,
}

/// `start..end` of the body becomes `by`.
#[derive(Debug)]
struct Cut {
    start: usize,
    end: usize,
    by: Bytes,
}

impl<'a> Splice<'a> {
    pub fn new(body: &'a Bytes, peek: &Peek) -> Self {
        Self { body, count: peek.count, close: peek.close, removed: vec![], cuts: vec![], appended: vec![] }
    }

    /// Removes a member. Removing it twice is removing it; removing it wins over replacing its value.
    pub fn remove(&mut self, member: &Member) -> &mut Self {
        if let Err(place) = self.removed.binary_search_by_key(&member.index, |m| m.index) {
            self.removed.insert(place, *member);
        }
        self
    }

    /// Replaces a member's value by this JSON text; of two replacements the first stands.
    pub fn replace(&mut self, member: &Member, value: Bytes) -> &mut Self {
        self.cuts.push(Cut { start: member.value.start, end: member.value.end, by: value });
        self
    }

    /// Appends JSON members, `"key":value` or several with commas between.
    pub fn append(&mut self, members: Bytes) -> &mut Self {
        if !members.is_empty() {
            self.appended.push(members);
        }
        self
    }

    /// Puts the pieces together.
    pub fn finish(mut self) -> Segments {
        self.cut_removed();
        // A removal begins before its value, so it wins over a replacement; the sort is stable, so the first of two
        // replacements does.
        self.cuts.sort_by_key(|cut| cut.start);
        let mut out = Segments::default();
        let mut at = 0;
        for Cut { start, end, by } in self.cuts {
            if start >= at {
                out.push(piece(self.body, at, start));
                out.push(by);
                at = end;
            }
        }
        if !self.appended.is_empty() {
            out.push(piece(self.body, at, self.close));
            at = self.close;
            let mut first = self.removed.len() == self.count;
            for members in self.appended {
                if !std::mem::take(&mut first) {
                    out.push(Bytes::from_static(b","));
                }
                out.push(members);
            }
        }
        out.push(piece(self.body, at, self.body.len()));
        out
    }

    fn cut_removed(&mut self) {
        for (earlier, member) in self.removed.iter().enumerate() {
            let leads = member.index == earlier; // everything before it is removed
            let (start, end) = if !leads {
                (member.before, member.value.end)
            } else if member.index + 1 < self.count {
                (member.name.start, member.after + 1)
            } else {
                (member.name.start, member.value.end)
            };
            self.cuts.push(Cut { start, end, by: Bytes::new() });
        }
    }
}

/// A slice of the body. Clamped, so that a member of another body gives a wrong request instead of a panic.
fn piece(body: &Bytes, start: usize, end: usize) -> Bytes {
    let end = end.min(body.len());
    body.slice(start.min(end)..end)
}

#[cfg(test)]
mod tests;
