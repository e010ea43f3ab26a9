//! One connection to a server, driven by the pager's ring.
//!
//! Commands go out in order, several in one send; replies come in the same order. A connection that
//! is cut first ends all its operations in the ring, and only then says so. Then its commands'
//! memory has no other user, and they may be given to another connection.

use crate::receiver::{Answer, Receiver, Want};
use crate::resp;
use crate::tls::{RECORD, Session};
use std::collections::VecDeque;
use terapage_store::StoreRing;
use terapage_sys::fd::{Fd, Room};
use terapage_sys::memory;
use terapage_sys::ring::{Address, Done, Message, Piece};
use terapage_sys::thread::now_ns;

/// The most pieces and bytes of one send, unless a single command has more.
const PIECES_MAX: usize = 512;
const BYTES_MAX: usize = 1 << 20;

/// The most bytes that are encrypted before the first of them are sent.
const ENCRYPTED: usize = 256 << 10;

/// The operations of a connection that complete in the ring. A token consists of such a number and,
/// above it, the connection's.
const DIAL: u64 = 0;
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
const CANCEL: u64 = 3;
const KINDS: u64 = 4;

/// A command.
pub struct Command<T> {
    /// The name by which its answer is recognised.
    pub name: T,
    /// Its bytes; those of the pieces follow, and a line end.
    pub text: Vec<u8>,
    /// A write's blocks.
    pub pieces: Vec<Piece>,
    /// What it brings.
    pub want: Want,
}

/// What has happened.
pub enum Event<T> {
    /// The server accepts commands.
    Up,
    /// A command's answer.
    Answered(T, Answer),
    /// There is no connection any more.
    Down {
        /// Why.
        why: String,
        /// Commands that the server may have received in part or completely, and may still execute.
        unsure: Vec<T>,
        /// Commands whose sending had not begun.
        unsent: Vec<T>,
    },
}

/// A connection, or none.
pub struct Connection<T> {
    number: u64,
    socket: Option<Fd>,
    is_connected: bool,
    /// TLS, if it is used.
    session: Option<Box<Session>>,
    /// It takes commands.
    is_up: bool,
    /// The connection is being closed, and the reason.
    cut: Option<String>,
    /// The address of a connection in progress.
    address: Option<Box<Address>>,
    receives: bool,
    /// Not begun to be sent.
    queue: VecDeque<Command<T>>,
    /// Commands that were sent, or are being sent, without an answer.
    sent: VecDeque<T>,
    /// Answers that came before the completion of their command's send.
    early: VecDeque<Answer>,
    /// The number of commands at the end of `sent` that are in the present send.
    in_send: usize,
    sending: Option<Sending>,
    receiver: Receiver,
    places: Vec<Piece>,
    incoming: Option<Box<Message>>,
    /// The time of the last progress, or of the last moment in which nothing was due.
    progress_ns: u64,
}

/// A send under way, with its memory.
struct Sending {
    /// The commands' texts.
    _texts: Vec<Vec<u8>>,
    /// The bytes that are still to be encrypted.
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

    /// Encrypts the next plain bytes, to be sent with the pending bytes of TLS.
    ///
    /// # Safety
    /// The pieces' memory is valid, and no code writes to it.
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

/// Copies bytes from the beginning of the pieces, as many as there are and as fit.
///
/// # Safety
/// The pieces' memory is valid, and no code writes to it.
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
    /// No connection yet; its tokens contain `number`.
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

    /// The connection's number in a token.
    pub fn number_of(token: u64) -> u64 {
        token / KINDS
    }

    /// Whether there is a connection, or one is being made or closed.
    pub fn is_used(&self) -> bool {
        self.socket.is_some()
    }

    /// The time for which expected work has made no progress, in nanoseconds.
    pub fn idle_ns(&self, now_ns: u64) -> u64 {
        let is_due = self.is_used() && (!self.is_up || !self.sent.is_empty());
        if is_due { now_ns.saturating_sub(self.progress_ns) } else { 0 }
    }

    /// Begins to connect, and then to agree on TLS, if there is a session.
    ///
    /// # Errors
    /// No socket is available.
    pub fn dial(
        &mut self,
        ring: &mut StoreRing<'_>,
        address: Address,
        session: Option<Session>,
    ) -> Result<(), String> {
        debug_assert!(!self.is_used());
        let socket = socket(&address).map_err(|error| error.to_string())?;
        let address = self.address.insert(Box::new(address));
        // SAFETY: the address belongs to this connection until the completion has come.
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

    /// Gives the connection a command, which [`go_on`](Self::go_on) sends.
    ///
    /// # Safety
    /// The sent and the wanted pieces stay valid until the command is answered or the connection is
    /// down. Until then the wanted pieces have no other user, and no code writes to the sent ones.
    pub unsafe fn give(&mut self, command: Command<T>) {
        self.queue.push_back(command);
    }

    /// Listens though nothing is to come, to hear at once if the server goes.
    pub fn listen(&mut self, ring: &mut StoreRing<'_>) {
        if self.is_up
            && self.cut.is_none()
            && let Err(error) = self.listen_always(ring)
        {
            self.cut(ring, &error.to_string());
        }
    }

    /// Sends and receives as much as possible.
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
            // SAFETY: the pieces are the commands' texts, which are kept, or memory that the givers
            // of the commands have promised.
            unsafe { sending.encrypt(session) }?;
        }
        self.sending = Some(sending);
        self.send_rest(ring).map_err(|error| error.to_string())
    }

    /// Takes commands from the queue, for one send.
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
        // SAFETY: texts, pieces and message are kept until the completion has come, and so is the
        // memory of the pieces, as the givers of the commands have promised.
        let begun = unsafe { ring.send_message(socket.raw(), &sending.message, true, token) };
        if begun.is_err() {
            self.sending = None;
        }
        begun
    }

    fn receive(&mut self, ring: &mut StoreRing<'_>) -> terapage_sys::Result<()> {
        if self.is_up && self.sent.is_empty() { Ok(()) } else { self.listen_always(ring) }
    }

    fn listen_always(&mut self, ring: &mut StoreRing<'_>) -> terapage_sys::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        if self.receives {
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
        // SAFETY: the places belong to the receiver or the session, or commands want them, whose
        // givers have promised that they stay valid; list and message stay until the completion has
        // come.
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

    /// Reports that the connection accepts commands, once it does: with TLS, after the server has
    /// proved its identity.
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

    /// Reads the received bytes.
    fn read(&mut self, bytes: usize) -> Result<(), String> {
        let mut answers = Vec::new();
        let (receiver, places) = (&mut self.receiver, &mut self.places);
        let read = match &mut self.session {
            // SAFETY: the receive has ended, and the givers of the commands have promised that the
            // wanted memory belongs to them until they are answered.
            None => unsafe { receiver.received(bytes, &mut answers) }.map_err(|no| no.to_string()),
            Some(session) => session.received(bytes, |plain| {
                // SAFETY: as above.
                unsafe { put(receiver, places, plain, &mut answers) }
            }),
        };
        self.early.extend(answers);
        read
    }

    /// Hands over the answers to commands that were certainly sent: the kernel may still read the
    /// memory of the others.
    fn hand_over(&mut self, out: &mut Vec<Event<T>>) {
        while self.sent.len() > self.in_send && !self.early.is_empty() {
            let (Some(name), Some(answer)) = (self.sent.pop_front(), self.early.pop_front()) else { return };
            out.push(Event::Answered(name, answer));
        }
    }

    /// Begins to close the connection. [`Event::Down`] follows, here or later.
    pub fn cut(&mut self, ring: &mut StoreRing<'_>, why: &str) {
        let Some(socket) = &self.socket else { return };
        if self.cut.is_some() {
            return;
        }
        self.cut = Some(why.to_owned());
        // This ends the operations under way. SAFETY: the call shuts down a socket of this
        // connection.
        unsafe { libc::shutdown(socket.raw(), libc::SHUT_RDWR) };
        let under_way =
            [(DIAL, self.address.is_some()), (SEND, self.sending.is_some()), (RECEIVE, self.receives)];
        for (kind, _) in under_way.iter().filter(|(_, is)| *is) {
            // If the cancellation cannot begin, the shutdown of the socket must suffice.
            ring.cancel(self.number * KINDS + kind, self.number * KINDS + CANCEL).ok();
        }
    }

    /// Reports that the connection is down, once none of its operations is in the ring.
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

    /// Shuts the connection down without waiting, because the process ends.
    pub fn hang_up(&mut self) {
        if let Some(socket) = &self.socket {
            // SAFETY: shuts a socket of this connection down.
            unsafe { libc::shutdown(socket.raw(), libc::SHUT_RDWR) };
        }
    }

    /// Forgets everything: in the child of a fork, whose parent continues with the connection.
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

/// Gives a receiver bytes as if they had been received at the places that it wants.
///
/// # Safety
/// The wanted pieces are valid, and have no other user.
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
            // SAFETY: the caller's promise; other places belong to the receiver.
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
    // The program may have opened as many files as it may.
    let _room = Room::make();
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call makes a socket.
    let socket = Fd::open("socket", || unsafe { libc::socket(address.family(), kind, 0) }.into())?;
    if address.family() != libc::AF_UNIX {
        let on = 1_i32;
        // Without this option a small request waits for the answer to the previous one. SAFETY: an
        // option of four bytes.
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
