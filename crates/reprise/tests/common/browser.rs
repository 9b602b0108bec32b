//! A browser without a window, told what to do through the DevTools protocol: JSON messages over a pair of pipes, each ended by a NUL
//! (`--remote-debugging-pipe`). It waits for what the page does, never for time.

use super::{hang_limit, system_program, Workplace};
use serde_json::{json, Value};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// The browser, of the package of the same name.
const PROGRAM: &str = "chromium-headless-shell";
/// Where it reads what it is told, and writes what it says.
const ENDS: [i32; 2] = [3, 4];
/// Both are moved out of the way of the others first.
const ABOVE: i32 = 20;

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: File,
    from: mpsc::Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// What it told of by itself.
    pub events: Vec<Value>,
}

fn pipe() -> [OwnedFd; 2] {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two new descriptors, which nobody else has.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0, "a pipe");
        ends.map(|fd| {
            let high = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, ABOVE);
            libc::close(fd);
            assert!(high >= ABOVE, "a descriptor");
            OwnedFd::from_raw_fd(high)
        })
    }
}

impl Browser {
    /// Starts one, with an empty page.
    pub fn start(place: &Workplace) -> Browser {
        let ([its_input, to], [from, its_output]) = (pipe(), pipe());
        let home = place.fresh_dir("home");
        let mut command = Command::new(system_program(PROGRAM));
        command
            .args(["--no-sandbox", "--disable-gpu", "--window-size=1400,900"])
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", home.display()))
            .env("HOME", &home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let own = [its_input.as_raw_fd(), its_output.as_raw_fd()];
        // SAFETY: between fork and exec only dup2 is called.
        unsafe {
            command.pre_exec(move || {
                for (from, to) in own.iter().zip(ENDS) {
                    if libc::dup2(*from, to) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("a browser");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for message in BufReader::new(File::from(from)).split(0) {
                let Ok(bytes) = message else { return };
                let value = serde_json::from_slice(&bytes).expect("JSON of the browser");
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            to: File::from(to),
            from: receiver,
            session: None,
            last: 0,
            events: Vec::new(),
        };
        let page = browser.tell("Target.createTarget", json!({ "url": "about:blank" }));
        let to = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.tell("Target.attachToTarget", to);
        browser.session = session["sessionId"].as_str().map(str::to_string);
        for what in [
            "Page.enable",
            "Runtime.enable",
            "Log.enable",
            "Network.enable",
        ] {
            browser.tell(what, json!({}));
        }
        browser
    }

    fn hear(&mut self) -> Value {
        let limit = hang_limit();
        let heard = self.from.recv_timeout(limit);
        heard.unwrap_or_else(|e| panic!("HANG: the browser said nothing for {limit:?} ({e})"))
    }

    /// Has a method done; its result.
    pub fn tell(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let bytes = format!("{message}\0");
        self.to
            .write_all(bytes.as_bytes())
            .expect("a living browser");
        loop {
            let mut heard = self.hear();
            if heard["id"] == self.last {
                assert!(heard["error"].is_null(), "{method}: {heard}");
                return heard["result"].take();
            }
            self.events.push(heard);
        }
    }

    /// Goes to a page, and waits until it is loaded.
    pub fn go(&mut self, url: &str) {
        self.events.clear();
        let there = self.tell("Page.navigate", json!({ "url": url }));
        assert!(there["errorText"].is_null(), "{url}: {there}");
        let loaded = |e: &Value| e["method"] == "Page.loadEventFired";
        while !self.events.iter().any(loaded) {
            let event = self.hear();
            self.events.push(event);
        }
    }

    /// Opens a file as a page.
    pub fn go_to_file(&mut self, file: &Path) {
        self.go(&format!("file://{}", file.display()));
    }

    /// The value of an expression in the page; of a promise, when it is kept.
    pub fn value(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.tell("Runtime.evaluate", params);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].take()
    }

    /// The value of an expression that is a text.
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        let text = value.as_str().map(str::to_string);
        text.unwrap_or_else(|| panic!("{expression} is no text: {value}"))
    }

    /// Waits until an expression is true in the page: it is looked at again whenever the document changes.
    pub fn until(&mut self, condition: &str) {
        self.value(&format!(
            "new Promise(done => {{
                const look = () => ({condition}) && done(true);
                new MutationObserver(look).observe(document,
                    {{ attributes: true, childList: true, characterData: true, subtree: true }});
                look();
            }})"
        ));
    }

    /// Presses the left button there, and lets it go.
    pub fn click(&mut self, x: f64, y: f64) {
        for what in ["mousePressed", "mouseReleased"] {
            let params = json!({ "type": what, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.tell("Input.dispatchMouseEvent", params);
        }
    }

    /// Turns the wheel there.
    pub fn wheel(&mut self, x: f64, y: f64, by: f64) {
        let params = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by });
        self.tell("Input.dispatchMouseEvent", params);
    }

    /// Presses a key by its name, with the text that it gives.
    pub fn key(&mut self, name: &str, text: &str) {
        let params = json!({ "type": "keyDown", "key": name, "text": text });
        self.tell("Input.dispatchKeyEvent", params);
        self.tell(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": name }),
        );
    }

    /// Types a text where the page's focus is.
    pub fn types(&mut self, text: &str) {
        self.tell("Input.insertText", json!({ "text": text }));
    }

    /// Everything that the page asked for since it was gone to.
    pub fn requests(&self) -> Vec<&str> {
        let asked = self.events.iter();
        let asked = asked.filter(|e| e["method"] == "Network.requestWillBeSent");
        asked
            .filter_map(|e| e["params"]["request"]["url"].as_str())
            .collect()
    }

    /// Nothing went wrong in the page: no exception, no message.
    pub fn assert_content(&self) {
        for event in &self.events {
            let method = event["method"].as_str().unwrap_or_default();
            let wrong = [
                "Runtime.exceptionThrown",
                "Log.entryAdded",
                "Runtime.consoleAPICalled",
            ];
            assert!(!wrong.contains(&method), "{event}");
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its own processes end with it when it is asked to.
        let end = json!({ "id": 0, "method": "Browser.close" });
        let asked = self.to.write_all(format!("{end}\0").as_bytes());
        while asked.is_ok() && self.from.recv_timeout(hang_limit()).is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
