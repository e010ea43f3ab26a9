//! All engines behave in the same way.

use super::*;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// A ring of each engine that is available here, and one whose threads may not begin.
fn rings() -> Vec<Ring> {
    let with = |engine, threads| match Ring::with(Some(engine), 32, threads) {
        Ok(ring) => Some(ring),
        Err(error) => {
            eprintln!("SKIPPED: {}: {error}", engine.name());
            None
        }
    };
    let mut rings: Vec<_> = IoEngine::ALL.into_iter().filter_map(|engine| with(engine, true)).collect();
    rings.extend(with(IoEngine::Threads, false));
    rings
}

/// Waits for `count` ends, sorted by tag.
fn ends(ring: &mut Ring, count: usize) -> Vec<Done> {
    let mut ends = Vec::new();
    while ends.len() < count {
        ring.enter(1).unwrap();
        ends.extend(std::iter::from_fn(|| ring.done()));
    }
    assert_eq!(ends.len(), count, "{}: {ends:?}", ring.engine().name());
    ends.sort_by_key(|done| done.tag);
    ends
}

fn result_of(ring: &mut Ring) -> i32 {
    ends(ring, 1)[0].result
}

fn piece(bytes: &[u8]) -> Piece {
    Piece::new(bytes.as_ptr() as usize, bytes.len())
}

#[test]
fn files_are_written_and_read_in_pieces() {
    let place = tempfile::tempdir().unwrap();
    for (number, mut ring) in rings().into_iter().enumerate() {
        assert!(!ring.has_unsubmitted());
        let path = place.path().join(number.to_string());
        let file = File::options().create_new(true).read(true).write(true).open(path).unwrap();
        let blocks: Vec<Vec<u8>> = (0..100_u8).map(|value| vec![value; 4096]).collect();
        let pairs: Vec<[Piece; 2]> =
            blocks.chunks(2).map(|pair| [piece(&pair[0]), piece(&pair[1])]).collect();
        for (at, pair) in pairs.iter().enumerate() {
            // SAFETY: the blocks outlive the writes, whose completions are taken below.
            unsafe { ring.write(file.as_raw_fd(), pair, at as u64 * 8192, at as u64) }.unwrap();
        }
        assert!(
            ends(&mut ring, 50)
                .iter()
                .enumerate()
                .all(|(at, done)| { (done.tag, done.result, done.more) == (at as u64, 8192, false) })
        );
        let got = vec![0_u8; 50 * 8192];
        let pieces: Vec<[Piece; 1]> = got.chunks(8192).map(|part| [piece(part)]).collect();
        for (at, one) in pieces.iter().enumerate() {
            // SAFETY: the memory outlives the reads, and is inspected after their completions.
            unsafe { ring.read(file.as_raw_fd(), one, at as u64 * 8192, at as u64) }.unwrap();
        }
        assert!(ends(&mut ring, 50).iter().all(|done| done.result == 8192));
        assert_eq!(got, blocks.concat());
        let end = [piece(&got[..4096])];
        // SAFETY: as above.
        unsafe { ring.read(file.as_raw_fd(), &end, 1 << 30, 1) }.unwrap();
        assert_eq!(result_of(&mut ring), 0, "behind the end of the file");
    }
}

#[test]
fn what_cannot_be_is_an_end_with_an_error() {
    let memory = [0_u8; 16];
    for mut ring in rings() {
        let pieces = [piece(&memory)];
        // SAFETY: nothing is read from a descriptor that does not exist.
        unsafe { ring.read(-1, &pieces, 0, 7) }.unwrap();
        assert_eq!(result_of(&mut ring), -libc::EBADF);
        ring.poll(12_345, false, 8).unwrap();
        assert_eq!(result_of(&mut ring), -libc::EBADF);
        ring.cancel(99, 9).unwrap();
        assert_eq!(result_of(&mut ring), -libc::ENOENT);
    }
}

#[test]
fn polls_report_once_or_each_time() {
    for mut ring in rings() {
        let counter = crate::fd::Fd::event().unwrap();
        ring.poll(counter.raw(), true, 1).unwrap();
        ring.enter(0).unwrap();
        assert!(ring.done().is_none());
        for _ in 0..3 {
            counter.signal();
            let done = ends(&mut ring, 1)[0];
            assert!(done.result & i32::from(libc::POLLIN) != 0 && !done.is_hang_up());
            counter.clear();
            if !done.more {
                ring.poll(counter.raw(), true, 1).unwrap();
            }
        }
        let (mine, others) = crate::fd::Fd::pipe().unwrap();
        ring.poll(mine.raw(), false, 2).unwrap();
        ring.enter(0).unwrap();
        assert!(ring.done().is_none());
        drop(others);
        let done = ends(&mut ring, 1)[0];
        assert!(done.tag == 2 && done.is_hang_up() && !done.more);
    }
}

#[test]
fn timeouts_end_in_their_order_and_can_be_cancelled() {
    for mut ring in rings() {
        ring.timeout(30_000_000, 3).unwrap();
        ring.timeout(1_000_000, 1).unwrap();
        ring.timeout(u64::MAX / 4, 4).unwrap();
        ring.enter(0).unwrap();
        let mut order = Vec::new();
        while order.len() < 2 {
            ring.enter(1).unwrap();
            order.extend(std::iter::from_fn(|| ring.done()).map(|done| (done.tag, done.result)));
        }
        assert_eq!(order, [(1, -libc::ETIME), (3, -libc::ETIME)]);
        ring.cancel(4, 5).unwrap();
        let cancelled: Vec<_> = ends(&mut ring, 2).iter().map(|done| (done.tag, done.result)).collect();
        assert_eq!(cancelled, [(4, -libc::ECANCELED), (5, 0)]);
    }
}

#[test]
fn sockets_send_and_receive_all_or_what_there_is() {
    for mut ring in rings() {
        let (mine, mut others) = UnixStream::pair().unwrap();
        let fd = mine.as_raw_fd();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let halves = [piece(&sent[..1_000_001]), piece(&sent[1_000_001..])];
        let message = Message::new(&halves);
        // SAFETY: message, pieces and bytes outlive the send.
        unsafe { ring.send_message(fd, &message, true, 1) }.unwrap();
        ring.enter(0).unwrap();
        let mut got = vec![0; sent.len()];
        let reader = std::thread::spawn(move || {
            others.read_exact(&mut got).unwrap();
            (others, got)
        });
        assert_eq!(result_of(&mut ring), sent.len() as i32);
        let (mut others, got) = reader.join().unwrap();
        assert!(got == sent, "other bytes have come");

        let place = vec![0_u8; 10];
        // SAFETY: the place outlives the receive, and is inspected after its completion.
        unsafe { ring.recv(fd, piece(&place), true, 2) }.unwrap();
        ring.enter(0).unwrap();
        assert!(ring.done().is_none());
        others.write_all(b"01234").unwrap();
        ring.enter(0).unwrap();
        assert!(ring.done().is_none(), "not all has come");
        others.write_all(b"56789rest").unwrap();
        assert_eq!(result_of(&mut ring), 10);
        assert_eq!(place, b"0123456789");
        let (first, second) = (vec![0_u8; 2], vec![0_u8; 100]);
        let places = [piece(&first), piece(&second)];
        let mut message = Message::new(&places);
        // SAFETY: as above.
        unsafe { ring.recv_message(fd, &mut message, false, 3) }.unwrap();
        assert_eq!(result_of(&mut ring), 4);
        assert_eq!((&first[..], &second[..2]), (&b"re"[..], &b"st"[..]));
        drop(others);
        // SAFETY: as above.
        unsafe { ring.recv(fd, piece(&place), false, 4) }.unwrap();
        assert_eq!(result_of(&mut ring), 0, "the other side has closed");
        // SAFETY: as above.
        unsafe { ring.send(fd, piece(&place), true, 5) }.unwrap();
        assert_eq!(result_of(&mut ring), -libc::EPIPE);
    }
}

/// A socket that is not connected yet.
fn unconnected() -> OwnedFd {
    // SAFETY: no memory is touched; the descriptor was made just now.
    unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)) }
}

#[test]
fn sockets_connect_and_what_waits_is_cancelled() {
    for mut ring in rings() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let (socket, address) = (unconnected(), Address::from(to));
        // SAFETY: the address outlives the connect.
        unsafe { ring.connect(socket.as_raw_fd(), &address, 1) }.unwrap();
        assert_eq!(result_of(&mut ring), 0);
        let (mut other, _) = listener.accept().unwrap();
        other.write_all(b"x").unwrap();
        let place = vec![0_u8; 1];
        // SAFETY: the place outlives the receive.
        unsafe { ring.recv(socket.as_raw_fd(), piece(&place), true, 2) }.unwrap();
        assert_eq!((result_of(&mut ring), place[0]), (1, b'x'));

        // SAFETY: as above; the completion of the receive is taken below.
        unsafe { ring.recv(socket.as_raw_fd(), piece(&place), true, 3) }.unwrap();
        ring.enter(0).unwrap();
        ring.cancel(3, 4).unwrap();
        let cancelled: Vec<_> = ends(&mut ring, 2).iter().map(|done| done.tag).collect();
        assert_eq!(cancelled, [3, 4]);
        other.write_all(b"y").unwrap();
        ring.enter(0).unwrap();
        assert!(ring.done().is_none());
        assert_eq!(place[0], b'x', "a cancelled receive leaves its memory alone");

        drop(listener);
        let refused = unconnected();
        // SAFETY: as above.
        unsafe { ring.connect(refused.as_raw_fd(), &address, 5) }.unwrap();
        assert_eq!(result_of(&mut ring), -libc::ECONNREFUSED);
        drop(TcpStream::from(socket));
    }
}

#[test]
fn the_child_of_a_fork_drops_a_ring_and_makes_its_own() {
    let place = tempfile::tempdir().unwrap();
    for ring in rings() {
        let engine = ring.engine();
        let file = File::options().create_new(true).write(true).open(place.path().join("file")).unwrap();
        // SAFETY: the child uses only its own memory, and ends without the parent's handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(ring);
            let mut ring = Ring::with(Some(engine), 16, false).unwrap();
            let pieces = [piece(b"of the child")];
            // SAFETY: the bytes are constant.
            unsafe { ring.write(file.as_raw_fd(), &pieces, 0, 1) }.unwrap();
            let written = result_of(&mut ring);
            // SAFETY: ends the process.
            unsafe { libc::_exit(written) };
        }
        let mut status = 0;
        // SAFETY: the child is this process's.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 12), "{}", engine.name());
        std::fs::remove_file(place.path().join("file")).unwrap();
        drop(ring);
    }
}
