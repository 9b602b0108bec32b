//! Names of a process's files in /proc, made without a heap.

/// Room for the longest of them.
const ROOM: usize = 48;

/// The name of one of a process's files.
pub struct ProcName([u8; ROOM]);

impl ProcName {
    /// `/proc/PID/FILE`, or `/proc/thread-self/FILE`: of a process whose first thread has ended, /proc/self has no memory.
    pub fn of(pid: Option<u32>, file: &[u8]) -> ProcName {
        let mut digits = [0; 10];
        let process = match pid {
            None => &b"thread-self"[..],
            Some(pid) => decimal(pid, &mut digits),
        };
        let mut name = [0; ROOM];
        let parts = [b"/proc/", process, b"/", file];
        let bytes = parts.into_iter().flatten();
        // A zero stays behind it.
        for (to, byte) in name[..ROOM - 1].iter_mut().zip(bytes) {
            *to = *byte;
        }
        ProcName(name)
    }

    /// Where it is, for a system call.
    pub fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

fn decimal(mut n: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &digits[first..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_their_process() {
        for pid in [0, 1, 9, 10, 4711, u32::MAX] {
            let name = ProcName::of(Some(pid), b"pagemap");
            let name = core::ffi::CStr::from_bytes_until_nul(&name.0).unwrap();
            assert_eq!(name.to_str(), Ok(&*std::format!("/proc/{pid}/pagemap")));
        }
        let own = ProcName::of(None, b"mem");
        let own = core::ffi::CStr::from_bytes_until_nul(&own.0).unwrap();
        assert_eq!(own.to_str(), Ok("/proc/thread-self/mem"));
    }
}
