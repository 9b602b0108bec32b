//! Files of proc(5) as text. The names of programs and threads are in them, and are bytes: whoever wants only text takes a process whose name is none for one
//! that isn't there.

use std::io;
use std::path::Path;

/// The file's text; what is no UTF-8 in it is replaced.
///
/// # Errors
/// When it can't be read, as where the process has ended.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_have_any_name() {
        let named = std::thread::spawn(|| {
            // SAFETY: names the calling thread (PR_SET_NAME(2const)).
            unsafe { libc::prctl(libc::PR_SET_NAME, c"a\xffb".as_ptr()) };
            let read = |file: &str| text(format!("/proc/thread-self/{file}"));
            ["comm", "stat", "status"].map(|file| read(file).expect("text"))
        });
        let all = named.join().expect("a thread");
        assert!(
            all.iter().all(|text| text.contains("a\u{fffd}b")),
            "{all:?}"
        );
    }
}
