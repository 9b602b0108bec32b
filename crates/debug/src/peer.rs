//! Who is at the other end of a connection within this machine. A TCP port is open to all its users, and a debugger does what it wants with the rights of who
//! replays; the kernel says whose a socket is (/proc/net/tcp, proc_pid_net(5)).

use rustix::process::geteuid;
use std::net::{SocketAddr, SocketAddrV4, TcpStream};

/// The user whose socket the other end is; `None` when the kernel doesn't say.
pub fn user(stream: &TcpStream) -> Option<u32> {
    let (SocketAddr::V4(its), SocketAddr::V4(ours)) =
        (stream.peer_addr().ok()?, stream.local_addr().ok()?)
    else {
        return None;
    };
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    owner(&table, its, ours)
}

/// May this user debug what we replay? We, and root.
pub fn may_debug(user: Option<u32>) -> bool {
    let own = geteuid().as_raw();
    user.is_some_and(|user| user == own || user == 0)
}

/// The user of the socket that is bound to `its` and connected to `ours`. One that was closed belongs to nobody, and is told as root's: what was sent
/// before may be anybody's.
fn owner(table: &str, its: SocketAddrV4, ours: SocketAddrV4) -> Option<u32> {
    let (its, ours) = (written(its), written(ours));
    table.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let found = words.nth(1) == Some(&its) && words.next() == Some(&ours);
        // Behind them: state (1: established), queues, timer, retransmits, uid.
        let open = found && words.next() == Some("01");
        open.then(|| words.nth(3)?.parse().ok())?
    })
}

/// An address as the table has it: the word as this machine has it in memory, and the port.
fn written(address: SocketAddrV4) -> String {
    let word = u32::from_ne_bytes(address.ip().octets());
    format!("{word:08X}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_connection_of_ones_own() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let here = listener.local_addr().expect("its address");
        let _other = TcpStream::connect(here).expect("a connection");
        let (stream, _) = listener.accept().expect("its end");
        let own = geteuid().as_raw();
        assert_eq!(user(&stream), Some(own));
        assert!(may_debug(user(&stream)));
    }

    #[test]
    fn others_are_told_apart() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
               0: 0100007F:04D2 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0\n\
               1: 0100007F:04D2 0100007F:A001 01 00000000:00000000 00:00000000 00000000     0        0 101 1 0 20 4 30 10 -1\n\
               2: 0100007F:A001 0100007F:04D2 01 00000000:00000000 00:00000000 00000000 65534        0 102 1 0 20 4 30 10 -1\n";
        let at = |port| SocketAddrV4::new([127, 0, 0, 1].into(), port);
        let user = owner(table, at(0xa001), at(1234));
        assert_eq!(user, Some(65534));
        let nobody = geteuid().as_raw() == 65534;
        assert_eq!(may_debug(user), nobody);
        assert_eq!(owner(table, at(0xa002), at(1234)), None);
        let closed = table.replace("0100007F:04D2 01", "0100007F:04D2 06");
        assert_eq!(owner(&closed, at(0xa001), at(1234)), None);
        assert!(!may_debug(None));
    }
}
