//! Is this process itself a recorded or replayed one?

use reprise_abi::layout::SESSION_BASE;
use reprise_abi::session::MAGIC;

/// True inside a recording, and in its replay: the session's memory is where it always is.
pub fn inside_a_session() -> bool {
    let mut magic = MAGIC.wrapping_add(1);
    let local = libc::iovec {
        iov_base: (&raw mut magic).cast(),
        iov_len: 8,
    };
    let remote = libc::iovec {
        iov_base: SESSION_BASE as *mut libc::c_void,
        iov_len: 8,
    };
    let own = std::process::id() as i32;
    // SAFETY: the kernel copies eight bytes into a word of ours, or says that there is nothing to copy.
    let copied = unsafe { libc::process_vm_readv(own, &local, 1, &remote, 1, 0) };
    copied == 8 && magic == MAGIC
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_test_is_in_no_session() {
        assert!(!super::inside_a_session());
    }
}
