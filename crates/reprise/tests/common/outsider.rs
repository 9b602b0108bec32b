//! A process that no recording may touch.

use std::process::{Child, Command, Stdio};

/// A process that has nothing to do with any recording: it waits for something to read, as long as the test lives.
pub struct Outsider(Child);

impl Outsider {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Outsider {
        let mut command = Command::new("cat");
        let command = command.stdin(Stdio::piped());
        Outsider(command.spawn().expect("an outsider"))
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Does it sleep, as it did, traced by nobody?
    pub fn assert_untouched(&mut self, by: &str) {
        let ended = self.0.try_wait().expect("to be asked");
        assert!(ended.is_none(), "{by}: the outsider has ended: {ended:?}");
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()));
        let status = status.expect("the outsider's status");
        for line in [
            "State:\tS (sleeping)",
            "TracerPid:\t0",
            "SigPnd:\t0000000000000000",
        ] {
            assert!(status.lines().any(|l| l == line), "{by}: {status}");
        }
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
