//! One connection to a server, as the pager's ring drives it.
//!
//! Commands go out in order, several in one send; replies come in the same order. A connection that
//! is cut ends all that it has in the ring before it says so: then nobody touches the memory of
//! its commands any more, and they may be given to another.

use crate::receiver::{Answer, Receiver, Want};
use crate::resp;
use crate::tls::{RECORD, Session};
use std::collections::VecDeque;
use std::os::fd::{FromRawFd, OwnedFd};
use terapage_store::StoreRing;
use terapage_sys::fd::{Fd, Room};
use terapage_sys::memory;
use terapage_sys::ring::{Address, Done, Message, Piece};
use terapage_sys::thread::now_ns;

/// Pieces and bytes that one send has at most, if it is not one command that has more.
const PIECES_MAX: usize = 512;
const BYTES_MAX: usize = 1 << 20;

/// Bytes that are encrypted before the first of them are sent.
const ENCRYPTED: usize = 256 << 10;

/// What of a connection ends in the ring. A token is such a number and, above it, the
/// connection's.
const DIAL: u64 = 0;
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
const CANCEL: u64 = 3;
const KINDS: u64 = 4;

/// A command.
pub struct Command<T> {
    /// What its answer is known by.
    pub name: T,
    /// Its bytes; those of the pieces follow, and a line's end.
    pub text: Vec<u8>,
    /// A write's blocks.
    pub pieces: Vec<Piece>,
    /// What it brings.
    pub want: Want,
}

/// What has happened.
pub enum Event<T> {
    /// The server takes commands.
    Up,
    /// A command's answer.
    Answered(T, Answer),
    /// There is no connection any more.
    Down {
        /// Why.
        why: String,
        /// Commands of which the server may have had a part, or the whole; it may come to them yet.
        unsure: Vec<T>,
        /// Commands that were not begun to be sent.
        unsent: Vec<T>,
    },
}

/// A connection, or none.
pub struct Connection<T> {
    number: u64,
    socket: Option<Fd>,
    is_connected: bool,
    /// TLS, if that is spoken.
    session: Option<Box<Session>>,
    /// It takes commands.
    is_up: bool,
    /// It is being taken down, and why.
    cut: Option<String>,
    /// Where it is being connected to.
    address: Option<Box<Address>>,
    receives: bool,
    /// Not begun to be sent.
    queue: VecDeque<Command<T>>,
    /// Sent, or being sent; without an answer.
    sent: VecDeque<T>,
    /// Answers that came before the send of their command was known to have ended.
    early: VecDeque<Answer>,
    /// Of those in `sent`, the last so many are in the send under way.
    in_send: usize,
    sending: Option<Sending>,
    receiver: Receiver,
    places: Vec<Piece>,
    incoming: Option<Box<Message>>,
    /// When something last went on, or nothing was due.
    progress_ns: u64,
}

/// A send under way: its memory.
struct Sending {
    /// The commands' texts.
    _texts: Vec<Vec<u8>>,
    /// What is yet to be encrypted.
    plain: Vec<Piece>,
    /// What was encrypted.
    cipher: Vec<u8>,
    pieces: Vec<Piece>,
    left: usize,
    message: Box<Message>,
}

impl Sending {
    fn new(texts: Vec<Vec<u8>>, pieces: Vec<Piece>) -> Sending {
        let left = pieces.iter().map(Piece::len).sum();
        let message = Box::new(Message::new(&pieces));
        Sending { _texts: texts, plain: Vec::new(), cipher: Vec::new(), pieces, left, message }
    }

    /// Has the next of what is plain encrypted, to be sent with what TLS has to say.
    ///
    /// # Safety
    /// The pieces' memory is valid, and nobody writes to it.
    unsafe fn encrypt(&mut self, session: &mut Session) -> Result<(), String> {
        let mut record = [0; RECORD];
        while !self.plain.is_empty() && session.out_len() < ENCRYPTED {
            // SAFETY: the caller's promise.
            let len = unsafe { gather(&self.plain, &mut record) };
            session.encrypt(&record[..len])?;
            skip(&mut self.plain, len);
        }
        let mut spare = std::mem::take(&mut self.cipher);
        spare.clear();
        self.cipher = session.take_out(spare);
        self.pieces.clear();
        self.pieces.push(Piece::new(self.cipher.as_ptr() as usize, self.cipher.len()));
        self.left = self.cipher.len();
        *self.message = Message::new(&self.pieces);
        Ok(())
    }
}

/// Copies as many bytes as there are, or have room, from the beginning of the pieces.
///
/// # Safety
/// The pieces' memory is valid, and nobody writes to it.
unsafe fn gather(pieces: &[Piece], to: &mut [u8]) -> usize {
    let mut done = 0;
    for piece in pieces {
        let len = piece.len().min(to.len() - done);
        // SAFETY: the caller's promise.
        to[done..done + len].copy_from_slice(unsafe { memory::bytes(piece.at(), len) });
        done += len;
    }
    done
}

/// The end of a command that has pieces.
static END: &[u8; 2] = b"\r\n";

impl<T: Copy> Connection<T> {
    /// None yet; its tokens have `number` in them.
    pub fn new(number: u64) -> Connection<T> {
        Connection {
            number,
            socket: None,
            is_connected: false,
            session: None,
            is_up: false,
            cut: None,
            address: None,
            receives: false,
            queue: VecDeque::new(),
            sent: VecDeque::new(),
            early: VecDeque::new(),
            in_send: 0,
            sending: None,
            receiver: Receiver::default(),
            places: Vec::new(),
            incoming: None,
            progress_ns: 0,
        }
    }

    /// The number of the connection that a token is of, or would be.
    pub fn number_of(token: u64) -> u64 {
        token / KINDS
    }

    /// Whether there is one, or one is being made or taken down.
    pub fn is_used(&self) -> bool {
        self.socket.is_some()
    }

    /// For how long nothing has gone on that should, in nanoseconds.
    pub fn idle_ns(&self, now_ns: u64) -> u64 {
        let is_due = self.is_used() && (!self.is_up || !self.sent.is_empty());
        if is_due { now_ns.saturating_sub(self.progress_ns) } else { 0 }
    }

    /// Begins to connect, and then to agree on TLS, if there is a session.
    ///
    /// # Errors
    /// There is no socket to be had.
    pub fn dial(
        &mut self,
        ring: &mut StoreRing<'_>,
        address: Address,
        session: Option<Session>,
    ) -> Result<(), String> {
        debug_assert!(!self.is_used());
        let socket = socket(&address).map_err(|error| error.to_string())?;
        let address = self.address.insert(Box::new(address));
        // SAFETY: the address is this connection's until the end has come.
        let begun = unsafe { ring.connect(socket.raw(), address, self.number * KINDS + DIAL) };
        if let Err(error) = begun {
            self.address = None;
            return Err(error.to_string());
        }
        self.socket = Some(socket);
        self.session = session.map(Box::new);
        self.progress_ns = now_ns();
        Ok(())
    }

    /// Gives it a command, for [`go_on`](Self::go_on) to send.
    ///
    /// # Safety
    /// The pieces, and those that are wanted, stay valid until the command is answered or the
    /// connection is down; those that are wanted are nobody else's until then, and the others are
    /// not written to.
    pub unsafe fn give(&mut self, command: Command<T>) {
        self.queue.push_back(command);
    }

    /// Sends and receives what there is to be sent and received.
    pub fn go_on(&mut self, ring: &mut StoreRing<'_>) {
        if !self.is_connected || self.cut.is_some() {
            return;
        }
        let begun = self.send(ring).and_then(|()| self.receive(ring).map_err(|error| error.to_string()));
        if let Err(why) = begun {
            self.cut(ring, &why);
        }
    }

    fn send(&mut self, ring: &mut StoreRing<'_>) -> Result<(), String> {
        let has_commands = self.is_up && !self.queue.is_empty();
        let has_more = self.session.as_ref().is_some_and(|session| session.out_len() > 0);
        if self.sending.is_some() || !has_commands && !has_more {
            return Ok(());
        }
        let mut sending = if has_commands { self.next_commands() } else { Sending::new(vec![], vec![]) };
        if let Some(session) = &mut self.session {
            sending.plain = std::mem::take(&mut sending.pieces);
            // SAFETY: the pieces are the commands' texts, which are kept, or memory that whoever
            // gave the commands has promised.
            unsafe { sending.encrypt(session) }?;
        }
        self.sending = Some(sending);
        self.send_rest(ring).map_err(|error| error.to_string())
    }

    /// Takes commands out of the queue, for one send.
    fn next_commands(&mut self) -> Sending {
        if self.sent.is_empty() {
            self.progress_ns = now_ns();
        }
        let (mut texts, mut pieces, mut left) = (Vec::new(), Vec::new(), 0);
        while let Some(command) = self.queue.front() {
            let bytes: usize = command.pieces.iter().map(Piece::len).sum();
            let is_full = pieces.len() + command.pieces.len() + 2 > PIECES_MAX || left + bytes > BYTES_MAX;
            if !texts.is_empty() && is_full {
                break;
            }
            let Some(command) = self.queue.pop_front() else { break };
            pieces.push(Piece::new(command.text.as_ptr() as usize, command.text.len()));
            left += bytes + command.text.len();
            if !command.pieces.is_empty() {
                pieces.extend_from_slice(&command.pieces);
                pieces.push(Piece::new(END.as_ptr() as usize, END.len()));
                left += END.len();
            }
            texts.push(command.text);
            self.receiver.expect(command.want);
            self.sent.push_back(command.name);
        }
        self.in_send = texts.len();
        Sending::new(texts, pieces)
    }

    fn send_rest(&mut self, ring: &mut StoreRing<'_>) -> terapage_sys::Result<()> {
        let (Some(sending), Some(socket)) = (&self.sending, &self.socket) else { return Ok(()) };
        let token = self.number * KINDS + SEND;
        // SAFETY: texts, pieces and message are kept until the end has come, and so is the memory
        // of the pieces, as whoever gave the commands has promised.
        let begun = unsafe { ring.send_message(socket.raw(), &sending.message, true, token) };
        if begun.is_err() {
            self.sending = None;
        }
        begun
    }

    fn receive(&mut self, ring: &mut StoreRing<'_>) -> terapage_sys::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        if self.receives || self.is_up && self.sent.is_empty() {
            return Ok(());
        }
        match &mut self.session {
            None => self.receiver.places(&mut self.places),
            Some(session) => {
                self.places.clear();
                self.places.push(session.room());
            }
        }
        let message = self.incoming.insert(Box::new(Message::new(&self.places)));
        let token = self.number * KINDS + RECEIVE;
        // SAFETY: the places are the receiver's or the session's, or wanted by commands, whose
        // giver has promised that they stay valid; list and message stay until the end has come.
        unsafe { ring.recv_message(socket.raw(), message, false, token) }?;
        self.receives = true;
        Ok(())
    }

    /// Something of this connection has ended in the ring.
    pub fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, out: &mut Vec<Event<T>>) {
        match done.tag % KINDS {
            DIAL => self.dialled(ring, done.result, out),
            SEND => self.has_sent(ring, done.result, out),
            RECEIVE => self.has_received(ring, done.result, out),
            _ => {}
        }
        self.go_on(ring);
        self.lie_down(out);
    }

    fn dialled(&mut self, ring: &mut StoreRing<'_>, result: i32, out: &mut Vec<Event<T>>) {
        self.address = None;
        self.progress_ns = now_ns();
        if result < 0 {
            self.cut(ring, &said(result));
        } else if self.cut.is_none() {
            self.is_connected = true;
            self.look_up(out);
        }
    }

    /// Says that it takes commands, once it does: with TLS, when the server has proved who it is.
    fn look_up(&mut self, out: &mut Vec<Event<T>>) {
        if !self.is_up && self.session.as_ref().is_none_or(|session| session.is_up()) {
            self.is_up = true;
            out.push(Event::Up);
        }
    }

    fn has_sent(&mut self, ring: &mut StoreRing<'_>, result: i32, out: &mut Vec<Event<T>>) {
        let Some(mut sending) = self.sending.take() else { return };
        let Ok(sent) = usize::try_from(result) else { return self.cut(ring, &said(result)) };
        self.progress_ns = now_ns();
        sending.left -= sent.min(sending.left);
        if sending.left == 0 && sending.plain.is_empty() {
            self.in_send = 0;
            self.hand_over(out);
            return;
        }
        if self.cut.is_some() {
            return;
        }
        if let (0, Some(session)) = (sending.left, &mut self.session) {
            // SAFETY: as in `send`.
            if let Err(why) = unsafe { sending.encrypt(session) } {
                return self.cut(ring, &why);
            }
        } else {
            skip(&mut sending.pieces, sent);
            *sending.message = Message::new(&sending.pieces);
        }
        self.sending = Some(sending);
        if let Err(error) = self.send_rest(ring) {
            self.cut(ring, &error.to_string());
        }
    }

    fn has_received(&mut self, ring: &mut StoreRing<'_>, result: i32, out: &mut Vec<Event<T>>) {
        self.receives = false;
        self.incoming = None;
        match usize::try_from(result) {
            Err(_) if self.cut.is_none() && -result == libc::EINTR => {}
            Err(_) => self.cut(ring, &said(result)),
            Ok(0) => self.cut(ring, "the server has closed the connection"),
            Ok(bytes) => {
                self.progress_ns = now_ns();
                let read = self.read(bytes);
                self.hand_over(out);
                match read {
                    Ok(()) => self.look_up(out),
                    Err(why) => self.cut(ring, &why),
                }
            }
        }
    }

    /// Reads what has been received.
    fn read(&mut self, bytes: usize) -> Result<(), String> {
        let mut answers = Vec::new();
        let (receiver, places) = (&mut self.receiver, &mut self.places);
        let read = match &mut self.session {
            // SAFETY: the receive has ended, and whoever gave the commands has promised that what
            // they want is theirs until they are answered.
            None => unsafe { receiver.received(bytes, &mut answers) }.map_err(|no| no.to_string()),
            Some(session) => session.received(bytes, |plain| {
                // SAFETY: as above.
                unsafe { put(receiver, places, plain, &mut answers) }
            }),
        };
        self.early.extend(answers);
        read
    }

    /// Hands over the answers to commands that are sent for certain: the memory of others is still
    /// the kernel's to read.
    fn hand_over(&mut self, out: &mut Vec<Event<T>>) {
        while self.sent.len() > self.in_send && !self.early.is_empty() {
            let (Some(name), Some(answer)) = (self.sent.pop_front(), self.early.pop_front()) else { return };
            out.push(Event::Answered(name, answer));
        }
    }

    /// Begins to take it down. [`Event::Down`] follows, here or later.
    pub fn cut(&mut self, ring: &mut StoreRing<'_>, why: &str) {
        let Some(socket) = &self.socket else { return };
        if self.cut.is_some() {
            return;
        }
        self.cut = Some(why.to_owned());
        // What is under way ends by that.
        // SAFETY: shuts a socket of this connection down.
        unsafe { libc::shutdown(socket.raw(), libc::SHUT_RDWR) };
        let under_way =
            [(DIAL, self.address.is_some()), (SEND, self.sending.is_some()), (RECEIVE, self.receives)];
        for (kind, _) in under_way.iter().filter(|(_, is)| *is) {
            // If it cannot be begun the socket's end must do.
            ring.cancel(self.number * KINDS + kind, self.number * KINDS + CANCEL).ok();
        }
    }

    /// Says that it is down, once nothing of it is in the ring any more.
    pub fn lie_down(&mut self, out: &mut Vec<Event<T>>) {
        let is_busy = self.address.is_some() || self.sending.is_some() || self.receives;
        if is_busy || self.cut.is_none() {
            return;
        }
        let why = self.cut.take().unwrap_or_default();
        let unsure = self.sent.drain(..).collect();
        let unsent = self.queue.drain(..).map(|command| command.name).collect();
        *self = Connection::new(self.number);
        out.push(Event::Down { why, unsure, unsent });
    }

    /// Shuts it down, and does not wait for anything: the process ends.
    pub fn hang_up(&mut self) {
        if let Some(socket) = &self.socket {
            // SAFETY: shuts a socket of this connection down.
            unsafe { libc::shutdown(socket.raw(), libc::SHUT_RDWR) };
        }
    }

    /// Forgets all: in the child of a fork, whose parent goes on with the connection.
    pub fn forget(&mut self) {
        *self = Connection::new(self.number);
    }
}

/// A command whose words are all text.
pub fn plain<T>(name: T, words: &[&[u8]]) -> Command<T> {
    let mut text = Vec::with_capacity(128);
    resp::command(&mut text, words);
    Command { name, text, pieces: Vec::new(), want: Want::Reply }
}

/// Gives a receiver bytes as if they had been received where it wants them.
///
/// # Safety
/// The pieces that are wanted are valid, and nobody else touches them.
unsafe fn put(
    receiver: &mut Receiver,
    places: &mut Vec<Piece>,
    mut bytes: &[u8],
    answers: &mut Vec<Answer>,
) -> Result<(), String> {
    while !bytes.is_empty() {
        receiver.places(places);
        let mut done = 0;
        for place in &*places {
            let len = place.len().min(bytes.len() - done);
            // SAFETY: the caller's promise; other places are the receiver's own.
            unsafe { memory::bytes(place.at(), len) }.copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
        // SAFETY: the caller's promise.
        unsafe { receiver.received(done, answers) }.map_err(|malformed| malformed.to_string())?;
        bytes = &bytes[done..];
    }
    Ok(())
}

/// Takes the first `bytes` off.
fn skip(pieces: &mut Vec<Piece>, mut bytes: usize) {
    let whole = pieces
        .iter()
        .take_while(|piece| {
            let fits = piece.len() <= bytes;
            bytes -= if fits { piece.len() } else { 0 };
            fits
        })
        .count();
    pieces.drain(..whole);
    if let Some(first) = pieces.first_mut() {
        *first = Piece::new(first.at() + bytes, first.len() - bytes);
    }
}

fn said(result: i32) -> String {
    std::io::Error::from_raw_os_error(-result).to_string()
}

fn socket(address: &Address) -> terapage_sys::Result<Fd> {
    // The program may have opened all that it may.
    let _room = Room::make();
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: makes a socket.
    let raw = unsafe { libc::socket(address.family(), kind, 0) };
    if raw < 0 {
        return Err(terapage_sys::Error { call: "socket", source: std::io::Error::last_os_error() });
    }
    // SAFETY: made just now, and nobody else's.
    let socket = Fd::adopt(unsafe { OwnedFd::from_raw_fd(raw) })?;
    if address.family() != libc::AF_UNIX {
        let on = 1_i32;
        // Without it a small request waits for the answer to the one before. SAFETY: an option of
        // four bytes.
        unsafe {
            libc::setsockopt(
                socket.raw(),
                libc::IPPROTO_TCP,
                libc::TCP_NODELAY,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_taken_off() {
        let mut pieces = vec![Piece::new(100, 10), Piece::new(200, 5), Piece::new(300, 7)];
        skip(&mut pieces, 12);
        let left: Vec<_> = pieces.iter().map(|piece| (piece.at(), piece.len())).collect();
        assert_eq!(left, [(202, 3), (300, 7)]);
        skip(&mut pieces, 3);
        assert_eq!((pieces.len(), pieces[0].at()), (1, 300));
    }
}
