//! Sockets of Rust's library: TCP with threads for each client, UDP, unix streams and datagrams, time limits, what is refused.
// run: 4 20

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::thread;
use std::time::Duration;

fn argument(i: usize, otherwise: usize) -> usize {
    std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(otherwise)
}

fn serve(mut stream: TcpStream) -> usize {
    let (mut length, mut served) = ([0; 4], 0);
    while stream.read_exact(&mut length).is_ok() {
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut text).unwrap();
        text.reverse();
        stream.write_all(&text).unwrap();
        served += 1;
    }
    served
}

fn main() {
    let (clients, rounds) = (argument(1, 4), argument(2, 20));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served: usize = thread::scope(|s| {
        for c in 0..clients {
            s.spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                for i in 0..rounds {
                    let text: Vec<u8> = (0..i * 300 + 1).map(|k| (k * 7 + c) as u8).collect();
                    stream.write_all(&(text.len() as u32).to_le_bytes()).unwrap();
                    stream.write_all(&text).unwrap();
                    let mut answer = vec![0; text.len()];
                    stream.read_exact(&mut answer).unwrap();
                    answer.reverse();
                    assert_eq!(answer, text);
                }
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
            });
        }
        let servers: Vec<_> = (0..clients).map(|_| listener.accept().unwrap().0).map(|stream| s.spawn(move || serve(stream))).collect();
        servers.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(served, clients * rounds);
    println!("served {served} on port {}", address.port());

    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(listener);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);

    let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    a.connect(b.local_addr().unwrap()).unwrap();
    let mut bytes = [0; 10];
    for i in 0..10u8 {
        a.send(&[i; 20][..usize::from(i) + 5]).unwrap();
        let (n, from) = b.recv_from(&mut bytes).unwrap();
        assert_eq!((n, from), (10.min(usize::from(i) + 5), a.local_addr().unwrap()));
    }
    b.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(b.recv_from(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);

    let (mut left, mut right) = UnixStream::pair().unwrap();
    let echo = thread::spawn(move || {
        let mut all = Vec::new();
        right.read_to_end(&mut all).unwrap();
        right.write_all(&all).unwrap();
        all.len()
    });
    let text: Vec<u8> = (0..300_000u32).map(|i| (i * i) as u8).collect();
    left.write_all(&text).unwrap();
    left.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    left.read_to_end(&mut back).unwrap();
    assert!(back == text && echo.join().unwrap() == text.len());
    assert_eq!(left.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let (left, right) = UnixDatagram::pair().unwrap();
    left.send(b"first").unwrap();
    left.send(b"second").unwrap();
    assert_eq!((right.recv(&mut bytes).unwrap(), right.recv(&mut bytes).unwrap()), (5, 6));
    println!("unix: {} bytes", text.len());
}
