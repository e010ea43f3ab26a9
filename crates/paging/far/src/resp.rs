//! The servers' protocol (RESP 2 and 3): commands into bytes, bytes into replies. No I/O.

use std::fmt::Write as _;

/// The longest line and the longest text that a reply of the control path may have, bytes.
const LINE_MAX: usize = 64 << 10;
const TEXT_MAX: usize = 4 << 20;

/// The most elements of one array, and the deepest nesting.
const ELEMENTS_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 8;

/// A server's reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+OK`, and the additional types of RESP 3: floating-point numbers, booleans.
    Simple(String),
    /// `-ERR ...`, without the sign.
    Error(String),
    /// `:42`
    Integer(i64),
    /// A text of known length.
    Bulk(Vec<u8>),
    /// There is none.
    Null,
    /// An array, a set, or a map as its keys and values in turns.
    Array(Vec<Reply>),
    /// A message that the server sends unasked.
    Push(Vec<Reply>),
}

impl Reply {
    /// The reply as text, if it is text.
    pub fn text(&self) -> Option<String> {
        match self {
            Reply::Simple(text) => Some(text.clone()),
            Reply::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Reply::Integer(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// The elements, if it has some.
    pub fn elements(&self) -> &[Reply] {
        match self {
            Reply::Array(elements) => elements,
            _ => &[],
        }
    }
}

/// Bytes that are not a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not a reply of a Valkey server: {0}")]
pub struct Malformed(pub &'static str);

/// Adds a command to `out`.
pub fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    open(out, words.len());
    words.iter().for_each(|word| text(out, word));
}

/// Adds the beginning of a command of this number of words.
pub fn open(out: &mut Vec<u8>, words: usize) {
    header(out, '*', words);
}

/// Adds a word of a command.
pub fn text(out: &mut Vec<u8>, word: &[u8]) {
    header(out, '$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Adds `sign`, a number and the line end, which precede a text of `len` bytes.
pub fn header(out: &mut Vec<u8>, sign: char, len: usize) {
    let mut line = String::with_capacity(24);
    write!(line, "{sign}{len}\r\n").expect("a text takes it");
    out.extend_from_slice(line.as_bytes());
}

/// The reply at the beginning of `bytes`, and its length; `None` if bytes are still missing.
///
/// # Errors
/// No further bytes could make it a reply.
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    let mut reader = Reader { bytes, at: 0, left: ELEMENTS_MAX };
    Ok(reader.reply(0)?.map(|reply| (reply, reader.at)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Elements that there may still be.
    left: usize,
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().take(LINE_MAX).position(|&b| b == b'\n') else {
            if rest.len() >= LINE_MAX {
                return Err(Malformed("a line has no end"));
            }
            return Ok(None);
        };
        self.at += end + 1;
        rest[..end].strip_suffix(b"\r").map(Some).ok_or(Malformed("a line ends without a carriage return"))
    }

    fn reply(&mut self, depth: usize) -> Result<Option<Reply>, Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed("it is nested too deeply"));
        }
        let Some(line) = self.line()? else { return Ok(None) };
        let (&sign, line) = line.split_first().ok_or(Malformed("a line is empty"))?;
        let words = || String::from_utf8_lossy(line).into_owned();
        Ok(Some(match sign {
            b'+' | b',' | b'#' | b'(' => Reply::Simple(words()),
            b'-' => Reply::Error(words()),
            b':' => Reply::Integer(number(line)?),
            b'_' => Reply::Null,
            b'$' | b'=' | b'!' => match self.bulk(length(line)?)? {
                None => return Ok(None),
                Some(Reply::Bulk(bytes)) if sign == b'!' => {
                    Reply::Error(String::from_utf8_lossy(&bytes).into_owned())
                }
                Some(reply) => reply,
            },
            b'*' | b'~' | b'>' | b'%' => {
                let Some(count) = length(line)? else { return Ok(Some(Reply::Null)) };
                let count = if sign == b'%' { count * 2 } else { count };
                let Some(elements) = self.elements(count, depth)? else { return Ok(None) };
                if sign == b'>' { Reply::Push(elements) } else { Reply::Array(elements) }
            }
            _ => return Err(Malformed("a reply begins with an unknown sign")),
        }))
    }

    fn bulk(&mut self, len: Option<usize>) -> Result<Option<Reply>, Malformed> {
        let Some(len) = len else { return Ok(Some(Reply::Null)) };
        if len > TEXT_MAX {
            return Err(Malformed("a text is longer than was asked for"));
        }
        let Some(rest) = self.bytes.get(self.at..self.at + len + 2) else { return Ok(None) };
        if &rest[len..] != b"\r\n" {
            return Err(Malformed("a text does not end where it should"));
        }
        self.at += len + 2;
        Ok(Some(Reply::Bulk(rest[..len].to_vec())))
    }

    fn elements(&mut self, count: usize, depth: usize) -> Result<Option<Vec<Reply>>, Malformed> {
        self.left = self.left.checked_sub(count).ok_or(Malformed("it has too many elements"))?;
        let mut elements = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            let Some(element) = self.reply(depth + 1)? else { return Ok(None) };
            elements.push(element);
        }
        Ok(Some(elements))
    }
}

fn number(line: &[u8]) -> Result<i64, Malformed> {
    let text = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    text.ok_or(Malformed("a number is none"))
}

/// A length; `None` for -1.
fn length(line: &[u8]) -> Result<Option<usize>, Malformed> {
    match number(line)? {
        -1 => Ok(None),
        len => {
            let len = usize::try_from(len).ok().filter(|&len| len <= 1 << 40);
            len.map(Some).ok_or(Malformed("a length is none"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(bytes: &[u8]) -> Reply {
        let (reply, used) = parse(bytes).unwrap().unwrap();
        assert_eq!(used, bytes.len());
        // However the stream is divided, a partial reply is not mistaken for another one.
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{end} bytes");
        }
        reply
    }

    #[test]
    fn replies_are_read() {
        assert_eq!(whole(b"+OK\r\n"), Reply::Simple("OK".into()));
        assert_eq!(whole(b"-ERR no\r\n"), Reply::Error("ERR no".into()));
        assert_eq!(whole(b":-7\r\n"), Reply::Integer(-7));
        assert_eq!(whole(b"$3\r\na\r\n\r\n"), Reply::Bulk(b"a\r\n".to_vec()));
        assert_eq!(whole(b"$0\r\n\r\n"), Reply::Bulk(Vec::new()));
        assert_eq!(whole(b"$-1\r\n"), Reply::Null);
        assert_eq!(whole(b"_\r\n"), Reply::Null);
        assert_eq!(whole(b"*-1\r\n"), Reply::Null);
        let pair = vec![Reply::Integer(1), Reply::Null];
        assert_eq!(whole(b"*2\r\n:1\r\n_\r\n"), Reply::Array(pair.clone()));
        assert_eq!(whole(b"%1\r\n:1\r\n_\r\n"), Reply::Array(pair.clone()));
        assert_eq!(whole(b">2\r\n:1\r\n_\r\n"), Reply::Push(pair));
        assert_eq!(whole(b"!5\r\nERR x\r\n"), Reply::Error("ERR x".into()));
    }

    #[test]
    fn what_is_none_is_refused() {
        let wrong: [&[u8]; 9] = [
            b"?\r\n",
            b"\r\n",
            b"+a\n",
            b":x\r\n",
            b"$-2\r\n",
            b"$99999999999\r\n",
            b"$1\r\nabc",
            b"*99999999\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
        ];
        for bytes in wrong {
            assert!(parse(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert!(parse(&vec![b'+'; LINE_MAX + 1]).is_err());
    }

    #[test]
    fn a_command_is_what_the_server_reads() {
        let mut out = Vec::new();
        command(&mut out, &[b"GET", b"a\r\n"]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n");
    }

    /// No bytes cause a panic or an endless loop.
    #[test]
    fn fuzzed_bytes_are_a_reply_or_refused() {
        let words: [&[u8]; 16] = [
            b"$", b"*", b"+", b"-", b":", b">", b"%", b"~", b"\r\n", b"1", b"-1", b"16384", b"x", b"_", b"!",
            b"\r",
        ];
        terapage_fuzz::fuzz("replies", 1000, |random| {
            let mut bytes = Vec::new();
            for _ in 0..random.below(40) {
                match random.below(8) {
                    0 => bytes.push(random.number() as u8),
                    _ => bytes.extend_from_slice(random.one(&words)),
                }
            }
            if let Ok(Some((_, used))) = parse(&bytes) {
                assert!(used <= bytes.len());
            }
        });
    }

    proptest! {
        #[test]
        fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some((_, used))) = parse(&bytes) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}
