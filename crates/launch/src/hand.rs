//! Hands descriptors of this process to a stopped one through a socket with an abstract name: it need not be allowed to look into
//! our /proc, nor see any file system (unix(7), SCM_RIGHTS). In another network namespace there is no such name: there the socket
//! lies for a moment in a directory that the stopped process sees.

use crate::error::{LaunchError, Result};
use crate::exec::BELOW_STACK;
use crate::record::Stopped;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bytes below the stack pointer that are used meanwhile.
const USED: usize = 256;
/// Layout of what the stopped process passes to recvmsg(2): `msghdr`, `iovec`, a byte of data, control messages.
const IOVEC: u64 = 64;
const DATA: u64 = 80;
const CONTROL: u64 = 96;
/// Descriptors that are handed over at once.
const MOST: usize = 2;
/// A `cmsghdr`, two descriptors.
const CONTROL_LEN: usize = 24;

/// The descriptors as the stopped process has them.
pub(crate) fn over(stopped: &Stopped, ours: [BorrowedFd; 2]) -> Result<[RawFd; 2]> {
    let at = stopped.entry.rsp - BELOW_STACK;
    let mut saved = [0; USED];
    stopped.tracee.read(at, &mut saved)?;
    let result = through_socket(stopped, ours, at);
    stopped.tracee.write(at, &saved)?;
    result
}

fn failed(what: &str, error: io::Error) -> LaunchError {
    LaunchError::Unsupported(format!(
        "the runtime can't be handed to it: {what}: {error}"
    ))
}

fn through_socket(stopped: &Stopped, ours: [BorrowedFd; 2], at: u64) -> Result<[RawFd; 2]> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (us, n) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
    let name = format!("reprise-{us}-{}-{n}", stopped.pid);
    let address = SocketAddr::from_abstract_name(&name).map_err(|e| failed("name", e))?;
    let listener = UnixListener::bind_addr(&address).map_err(|e| failed("bind", e))?;

    let remote = |what: &str, nr: i64, args: [u64; 6]| match stopped.remote(nr, args)? {
        r if r >= 0 => Ok(r as u64),
        r => Err(failed(what, io::Error::from_raw_os_error(-r as i32))),
    };
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
    let socket = remote(
        "socket",
        libc::SYS_socket,
        [libc::AF_UNIX as u64, kind, 0, 0, 0, 0],
    )?;
    let connect = |path: &[u8]| -> Result<i64> {
        let mut sockaddr = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
        sockaddr.extend(path);
        stopped.tracee.write(at, &sockaddr)?;
        let len = sockaddr.len() as u64;
        stopped.remote(libc::SYS_connect, [socket, at, len, 0, 0, 0])
    };
    let mut listener = listener;
    let mut connected = connect(format!("\0{name}").as_bytes())?;
    if connected == -i64::from(libc::ECONNREFUSED) {
        for directory in DIRECTORIES {
            let Ok(named) = Named::bind(stopped.pid, directory, &name) else {
                continue;
            };
            connected = connect(format!("{directory}/{name}\0").as_bytes())?;
            if connected >= 0 {
                listener = named.listener.try_clone().map_err(|e| failed("bind", e))?;
                break;
            }
        }
    }
    if connected < 0 {
        let why = io::Error::from_raw_os_error(-connected as i32);
        return Err(failed("connect", why));
    }

    let (peer, _) = listener.accept().map_err(|e| failed("accept", e))?;
    if peer_pid(&peer) != Some(stopped.pid) {
        return Err(failed("accept", io::ErrorKind::PermissionDenied.into()));
    }
    send(&peer, &ours).map_err(|e| failed("send", e.into()))?;

    let words = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_ne_bytes()).collect() };
    let header = [0, 0, at + IOVEC, 1, at + CONTROL, CONTROL_LEN as u64, 0];
    stopped.tracee.write(at, &words(&header))?;
    stopped.tracee.write(at + IOVEC, &words(&[at + DATA, 1]))?;
    let flags = libc::MSG_CMSG_CLOEXEC as u64;
    remote("receive", libc::SYS_recvmsg, [socket, at, flags, 0, 0, 0])?;
    let mut control = [0; CONTROL_LEN];
    stopped.tracee.read(at + CONTROL, &mut control)?;
    remote("close", libc::SYS_close, [socket, 0, 0, 0, 0, 0])?;
    let number = |i: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&control[16 + 4 * i..20 + 4 * i]);
        RawFd::from_ne_bytes(bytes)
    };
    // A full table of descriptors cuts the message short.
    match control[0] {
        24 => Ok([number(0), number(1)]),
        _ => Err(failed(
            "receive",
            io::Error::from_raw_os_error(libc::EMFILE),
        )),
    }
}

/// Where a socket may lie for a moment.
const DIRECTORIES: [&str; 5] = ["/tmp", "/dev/shm", "/var/tmp", "/run", ""];

/// A socket in a directory of the stopped process, gone when dropped.
struct Named {
    listener: UnixListener,
    path: String,
}

impl Named {
    fn bind(pid: libc::pid_t, directory: &str, name: &str) -> io::Result<Named> {
        let path = format!("/proc/{pid}/root{directory}/{name}");
        let listener = UnixListener::bind(&path)?;
        let named = Named { listener, path };
        // It may be somebody else; who it is is asked once it has connected.
        std::fs::set_permissions(&named.path, std::fs::Permissions::from_mode(0o666))?;
        Ok(named)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn peer_pid(peer: &UnixStream) -> Option<i32> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of_val(&credentials) as libc::socklen_t;
    // SAFETY: fills a struct of ours.
    let r = unsafe {
        libc::getsockopt(
            peer.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut len,
        )
    };
    (r == 0).then_some(credentials.pid)
}

/// Sends up to [`MOST`] descriptors with one byte. Safe after a fork.
pub(crate) fn send(socket: impl AsFd, fds: &[BorrowedFd]) -> rustix::io::Result<()> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::NOBUFS);
    }
    let byte = [IoSlice::new(&[0])];
    sendmsg(socket, &byte, &mut control, SendFlags::NOSIGNAL).map(|_| ())
}
