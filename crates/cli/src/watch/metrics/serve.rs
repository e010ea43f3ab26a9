//! A small HTTP server of one page, for scrapers.

use super::collect::Collector;
use super::text::{Format, page};
use anyhow::bail;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// The time in which a request must arrive, and an answer must be sent.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request.
const REQUEST_MAX: usize = 8192;

/// Listens at the address. Returns the real address: port 0 stands for any free port.
///
/// # Errors
/// The port is in use, or the address is not this machine's.
pub fn listen(address: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    match TcpListener::bind(address) {
        Ok(listener) => {
            let address = listener.local_addr()?;
            Ok((listener, address))
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            bail!("--listen: {address} is in use (name another port, or 0 for any free one)")
        }
        Err(error) => bail!("--listen: {address}: {error}"),
    }
}

/// Answers requests, one after the other.
pub fn serve(listener: &TcpListener, collector: &mut Collector) -> ! {
    loop {
        match listener.accept() {
            // A client that disconnects in the middle gets no answer.
            Ok((stream, _)) => drop(answer(stream, collector)),
            // No descriptors, perhaps: later there are some.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(mut stream: TcpStream, collector: &mut Collector) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = request(&mut stream)?;
    let first = request.lines().next().unwrap_or_default();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => {
            let format = format_of(&request);
            ("200 OK", format.content_type(), page(&collector.collect(), format))
        }
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if method != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// Reads a request up to its empty line.
fn request(stream: &mut TcpStream) -> std::io::Result<String> {
    let (mut all, mut some) = (Vec::new(), [0; 1024]);
    while !all.windows(4).any(|end| end == b"\r\n\r\n") {
        let got = stream.read(&mut some)?;
        if got == 0 || all.len() + got > REQUEST_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        all.extend_from_slice(&some[..got]);
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

/// The format that a request accepts: OpenMetrics, if it says so.
fn format_of(request: &str) -> Format {
    let accepts = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")).then_some(())
    };
    if request.lines().find_map(accepts).is_some() { Format::Open } else { Format::Text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_what_the_request_accepts() {
        let open = "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n";
        assert_eq!(format_of(open), Format::Open);
        assert_eq!(format_of("GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n"), Format::Text);
    }

    #[test]
    fn a_port_in_use_is_told() {
        let (listener, address) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = listen(address).unwrap_err().to_string();
        assert!(error.contains("in use") && !error.contains('\n'), "{error}");
        drop(listener);
    }
}
