//! The parts of operations, one for each value that an operation touches: sending and completing
//! them.

use super::*;

impl Far {
    /// The parts of an operation, one for each value that it touches.
    pub(super) fn cut(&mut self, op: &Op<'_>) -> Vec<u32> {
        let since_ns = now_ns();
        let slots = op.slot..op.slot + (op.bytes() / self.block) as u32;
        let was_lost = self.lost.as_ref().is_some_and(|lost| slots.clone().any(|slot| lost.get(slot)));
        let anew = self.role != Role::Owner && was_lost;
        let (mut slot, mut left) = (op.slot, (op.bytes() / self.block) as u32);
        let mut pieces = op.pieces.to_vec();
        let mut parts = Vec::with_capacity(2);
        while left > 0 {
            let count = left.min(self.per - slot % self.per);
            let rest = split_off(&mut pieces, count as usize * self.block);
            let part = Part {
                op: op.id,
                kind: op.kind,
                slot,
                count,
                pieces: std::mem::replace(&mut pieces, rest),
                urgent: op.urgent,
                since_ns,
                lane: 0,
                asked: false,
                moves: 0,
                due_ns: 0,
                wrong: 0,
                anew,
            };
            parts.push(self.parts.add(part));
            (slot, left) = (slot + count, left - count);
        }
        parts
    }

    /// The part is over.
    pub(super) fn end(&mut self, index: u32, result: Result<(), Failure>, ended: &mut Vec<Ended>) {
        let Some(part) = self.parts.take(index) else { return };
        // The reader of a lost block compares its hash.
        if result.is_ok() && (part.kind == OpKind::Write || part.anew) {
            for slot in part.slot..part.slot + part.count {
                if let Some(lost) = &mut self.lost {
                    lost.set(slot, false);
                }
            }
        }
        if result.is_ok() && part.kind == OpKind::Write {
            self.refusing = None;
        }
        let Some(open) = self.ops.get_mut(part.op) else { return };
        open.parts -= 1;
        if let Err(failure) = result {
            open.failure.get_or_insert(failure);
        }
        if open.parts > 0 {
            return;
        }
        if let Some(open) = self.ops.take(part.op) {
            self.open -= 1;
            ended.push(Ended { id: part.op, result: open.failure.map_or(Ok(()), Err) });
        }
    }

    /// The part has failed for good.
    pub(super) fn fail(&mut self, index: u32, why: &str, ended: &mut Vec<Ended>) {
        let key = self.parts.get_mut(index).map(|part| part.slot).map(|slot| self.key_of(slot));
        let why = format!("{why} (key {})", key.unwrap_or_default());
        self.end(index, Err(Failure::lasting(Why::Text(why))), ended);
    }

    pub(super) fn key_of(&self, slot: u32) -> String {
        String::from_utf8_lossy(&self.space.value(slot / self.per)).into_owned()
    }

    /// Gives a part to its connection, if its value exists.
    pub(super) fn give(&mut self, index: u32, ring: &mut StoreRing<'_>) {
        let Some(part) = self.parts.get_mut(index) else { return };
        let (value, lane, asked) = (part.slot / self.per, part.lane, part.asked);
        if part.kind == OpKind::Write && self.values[value as usize] != Value::There {
            if self.per > 1 || !self.is_announced(value) {
                self.aside.push(index);
                self.create(value, lane, asked);
                return;
            }
            // The write of its single block makes the value.
            self.values[value as usize] = Value::There;
            self.created += 1;
            self.tell_made();
        }
        if asked {
            self.ask(lane, Ask::Asking, &[b"ASKING"]);
        }
        let Some(part) = self.parts.get_mut(index) else { return };
        let key = self.space.value(value);
        let from = (part.slot % self.per) as usize * self.block;
        let bytes = part.count as usize * self.block;
        let mut text = Vec::with_capacity(160);
        let number = |number: usize| number.to_string().into_bytes();
        let command = match part.kind {
            OpKind::Read => {
                resp::command(&mut text, &[b"GETRANGE", &key, &number(from), &number(from + bytes - 1)]);
                let want = Want::Bytes(part.pieces.clone());
                Command { name: Ask::Part(index), text, pieces: Vec::new(), want }
            }
            OpKind::Write if self.per == 1 => {
                resp::open(&mut text, 3);
                [b"SET", &key[..]].iter().for_each(|word| resp::text(&mut text, word));
                resp::header(&mut text, '$', bytes + MARK.len());
                let mut pieces = part.pieces.clone();
                pieces.push(Piece::new(MARK.as_ptr() as usize, MARK.len()));
                Command { name: Ask::Part(index), text, pieces, want: Want::Reply }
            }
            OpKind::Write => {
                resp::open(&mut text, 4);
                [b"SETRANGE", &key[..], &number(from)].iter().for_each(|word| resp::text(&mut text, word));
                resp::header(&mut text, '$', bytes);
                Command { name: Ask::Part(index), text, pieces: part.pieces.clone(), want: Want::Reply }
            }
        };
        self.lanes[lane].bytes += bytes;
        // SAFETY: the pieces belong to an operation that has not ended, and does not end before the
        // part is answered or the connection is down.
        unsafe { self.lanes[lane].connection.give(command) };
        self.lanes[lane].connection.go_on(ring);
    }

    /// Sends a command without pieces.
    pub(super) fn ask(&mut self, lane: usize, name: Ask, words: &[&[u8]]) {
        // Without a connection the command is sent after the next one is made: nothing precedes
        // `HELLO`.
        if self.lanes[lane].connection.is_used() {
            // SAFETY: there are no pieces.
            unsafe { self.lanes[lane].connection.give(plain(name, words)) };
        }
    }

    /// Whether a part reads slots that were lost since it began: the present bytes are not the
    /// written ones.
    pub(super) fn reads_lost(&mut self, index: u32) -> bool {
        let (Some(lost), Some(part)) = (&self.lost, self.parts.get_mut(index)) else { return false };
        part.kind == OpKind::Read
            && !part.anew
            && (part.slot..part.slot + part.count).any(|slot| lost.get(slot))
    }
}

/// Keeps the first `bytes` and returns the rest.
fn split_off(pieces: &mut Vec<Piece>, mut bytes: usize) -> Vec<Piece> {
    for index in 0..pieces.len() {
        let piece = pieces[index];
        if bytes < piece.len() {
            let mut rest = pieces.split_off(index);
            rest[0] = Piece::new(piece.at() + bytes, piece.len() - bytes);
            if bytes > 0 {
                pieces.push(Piece::new(piece.at(), bytes));
            }
            return rest;
        }
        bytes -= piece.len();
    }
    Vec::new()
}
