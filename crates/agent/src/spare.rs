//! Files of /proc, read also when this process has no descriptor left: one is kept for that. Who can't look whether a process lives would wait
//! for it for ever.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::sync::Mutex;

static SPARE: Mutex<Option<File>> = Mutex::new(None);

/// Keeps a descriptor for later. Where there is none left, it is the agent's standard input, which is `/dev/null` and which nobody reads.
pub fn keep() {
    if let Ok(mut spare) = SPARE.lock() {
        if spare.is_none() {
            // SAFETY: nothing else in this process owns or uses it; when it was closed, the next one that is opened has its number.
            let input = || unsafe { File::from_raw_fd(0) };
            *spare = Some(File::open("/dev/null").unwrap_or_else(|_| input()));
        }
    }
}

/// The text of a file, for which the spare descriptor is used when there is no other.
pub fn read(path: &str) -> io::Result<String> {
    match reprise_launch::proc_files::text(path) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {}
        done => return done,
    }
    if let Ok(mut spare) = SPARE.lock() {
        *spare = None;
    }
    let text = reprise_launch::proc_files::text(path);
    keep();
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Set in the process that uses up its descriptors: other tests need theirs.
    const ALONE: &str = "REPRISE_TEST_NO_DESCRIPTORS";

    #[test]
    fn the_last_descriptor_is_for_looking() {
        if std::env::var_os(ALONE).is_some() {
            return without_descriptors();
        }
        let this = std::env::current_exe().expect("this test");
        let name = "spare::tests::the_last_descriptor_is_for_looking";
        let status = Command::new(this)
            .args(["--exact", name, "--test-threads=1"])
            .env(ALONE, "1")
            .status();
        assert!(status.expect("run").success());
    }

    fn without_descriptors() {
        super::keep();
        let mut hoard = Vec::new();
        while let Ok(f) = std::fs::File::open("/dev/null") {
            hoard.push(f);
        }
        let plain = std::fs::read_to_string("/proc/self/stat");
        let spare = super::read("/proc/self/stat");
        drop(hoard);
        assert!(plain.is_err());
        assert!(spare.expect("read").contains(") "));
    }
}
