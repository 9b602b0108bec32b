//! `reprise view`: the page in a browser, the page as a file, and the server against whoever connects.

use crate::common;

use common::browser::Browser;
use common::{
    free_port, hang_limit, run, system_program, Guest, Info, Recording, Running, Workplace,
    OWN_FAILURE,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// A running `reprise view`.
struct View {
    running: Running,
    port: u16,
    url: String,
}

impl View {
    fn start(place: &Workplace, trace: &Path) -> View {
        let mut command = place.reprise(["view", "--no-browser"]);
        View::of(Running::start_reading(command.arg(trace), None))
    }

    fn of(mut running: Running) -> View {
        let mut line = String::new();
        let out = running.child.stdout.as_mut().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let url = line.split_whitespace().find(|w| w.starts_with("http:"));
        let url = url.unwrap_or_else(|| panic!("no address: {line:?}"));
        let port = url.split([':', '/']).nth(4).and_then(|p| p.parse().ok());
        View {
            port: port.expect("a port"),
            url: url.to_string(),
            running,
        }
    }

    /// The secret part of the address, with slashes around it.
    fn path(&self) -> &str {
        let at = self.url.rfind(&self.port.to_string()).expect("the port");
        &self.url[at + self.port.to_string().len()..]
    }

    /// Says something to the server; all that it answers.
    fn say(&self, words: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(words.as_bytes()).expect("a listener");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a listener");
        stream
            .set_read_timeout(Some(hang_limit()))
            .expect("a limit");
        stream
    }

    /// Gets something below the secret path; head and body.
    fn get(&self, what: &str) -> (String, String) {
        let answer = self.say(&format!(
            "GET {}{what} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n",
            self.path(),
            self.port
        ));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        (head.to_string(), body.to_string())
    }

    fn json(&self, what: &str) -> Value {
        let (head, body) = self.get(what);
        assert!(head.starts_with("HTTP/1.1 200 "), "{what}: {head}");
        serde_json::from_str(&body).unwrap_or_else(|e| panic!("{what}: {e}: {body}"))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.running.child.kill();
        let _ = self.running.child.wait();
    }
}

fn recorded(place: &Workplace, guest: &Guest, flags: &[&str]) -> Recording {
    let recording = place.record_with(guest, flags);
    assert!(
        guest.outcome.fits(recording.run.status),
        "{}",
        recording.run.describe()
    );
    recording
}

/// What `dump` prints, line by line.
fn dumped(place: &Workplace, trace: &Path) -> Vec<String> {
    let out = run(place.reprise(["dump"]).arg(trace), None);
    assert!(out.status.success(), "{}", out.describe());
    out.text().lines().map(str::to_string).collect()
}

/// Waits until the page has drawn what is visible, and all that it asked for is answered.
fn drawn(browser: &mut Browser) {
    let all = [("ready", "yes"), ("waiting", "0"), ("unanswered", "0")];
    let all = all.map(|(what, is)| format!("document.body.dataset.{what} === '{is}'"));
    browser.until(&format!("document.body && {}", all.join(" && ")));
}

/// Nothing went wrong in the page, and nothing can any more: it asks nobody for anything, so that its server may end.
fn went_well(browser: &mut Browser) {
    drawn(browser);
    browser.assert_content();
}

/// Clicks an event where the page has drawn it.
fn click(browser: &mut Browser, event: u64, thread: u64) {
    let place = browser.value(&format!(
        "(() => {{
            const canvas = document.getElementById('canvas').getBoundingClientRect();
            const row = document.querySelector('.thread[data-thread=\"{thread}\"]').getBoundingClientRect();
            const {{ from, to }} = document.body.dataset;
            return [canvas.left + ({event} + 0.5 - from) / (to - from) * canvas.width, row.top + row.height / 2];
        }})()"
    ));
    let at = |i: usize| place[i].as_f64().expect("a place");
    browser.click(at(0), at(1));
}

/// The page shows what the trace has, and a click on an event shows what `dump` says of it.
fn assert_page(browser: &mut Browser, info: &Info, lines: &[String]) {
    drawn(browser);
    let counts = browser.text("document.getElementById('counts').textContent");
    let digits = counts.replace(',', "");
    let threads = info.0["threads"].as_u64().expect("threads");
    assert!(
        digits.starts_with(&format!("{} event", info.events())),
        "{counts}"
    );
    assert!(digits.contains(&format!(" {threads} thread")), "{counts}");
    let shown = browser.value("[...document.querySelectorAll('.thread')].map(e => +e.dataset.tid)");
    let shown: BTreeSet<u64> = shown
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    let tid = |line: &str| -> Option<u64> {
        line.split_once('[')?
            .1
            .split_once(']')?
            .0
            .split_once(' ')?
            .1
            .parse()
            .ok()
    };
    let all: BTreeSet<u64> = lines.iter().filter_map(|l| tid(l)).collect();
    assert_eq!(shown, all);
    assert_eq!(shown.len() as u64, threads);
    // A call of the second thread with a beginning and an end, if there is one; an event of it in any case.
    let threads: Vec<u64> = all.iter().copied().collect();
    let of = |line: &&String, tid: u64| line.contains(&format!(" {tid}] "));
    let second = *threads.get(1).unwrap_or(&threads[0]);
    let number = |line: &String| -> u64 {
        line.split_whitespace()
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number")
    };
    let own: Vec<&String> = lines.iter().filter(|l| of(l, second)).collect();
    let last = number(own[own.len() - 1]);
    browser.value(&format!("location.hash = '#event={last}'"));
    browser.until(&format!(
        "document.getElementById('line').textContent.includes({:?})",
        lines[last as usize]
    ));
    drawn(browser);
    let (from, to) = (window(browser, "from"), window(browser, "to"));
    let visible = |l: &&String| (from..to).contains(&(number(l) as f64)) && number(l) != last;
    // Of this thread, if another event of it is visible.
    let near = || own.iter().copied().rev().find(visible);
    let wanted = near().or_else(|| lines.iter().find(visible));
    let wanted = wanted.unwrap_or_else(|| panic!("one event only: {own:?}"));
    let clicked = tid(wanted).expect("a thread");
    let thread = browser.text(&format!(
        "document.querySelector('.thread[data-tid=\"{clicked}\"]').dataset.thread"
    ));
    click(browser, number(wanted), thread.parse().expect("a number"));
    browser.until(&format!(
        "document.getElementById('line').textContent.includes({wanted:?})"
    ));
    let address = browser.text("location.hash");
    assert_eq!(address, format!("#event={}", number(wanted)));
}

fn window(browser: &mut Browser, end: &str) -> f64 {
    let text = browser.text(&format!("document.body.dataset.{end}"));
    text.parse().expect("a number")
}

#[test]
fn the_page_shows_the_threads_and_a_click_an_event() {
    let place = Workplace::new();
    let mut browser = Browser::start(&place);
    for engine in ["serial", "order"] {
        let guest = Guest::new("mutex_contention");
        let recording = recorded(&place, &guest, &["--engine", engine]);
        let view = View::start(&place, &recording.dir);
        browser.go(&view.url);
        assert_page(
            &mut browser,
            &place.info(&recording.dir),
            &dumped(&place, &recording.dir),
        );
        let own = format!("http://127.0.0.1:{}/", view.port);
        assert!(
            browser.requests().iter().all(|url| url.starts_with(&own)),
            "{:?}",
            browser.requests()
        );
        went_well(&mut browser);
    }
}

#[test]
fn a_call_in_two_parts_and_its_flows() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("mutex_contention"), &[]);
    let lines = dumped(&place, &recording.dir);
    let resumed = lines
        .iter()
        .position(|l| l.contains("<... futex resumed>) = 0"))
        .expect("a lock");
    let mut browser = Browser::start(&place);
    let view = View::start(&place, &recording.dir);
    browser.go(&format!("{}#event={resumed}", view.url));
    browser.until("document.getElementById('more').textContent");
    let shown = browser.text("document.getElementById('line').textContent");
    let both: Vec<&str> = shown.lines().collect();
    assert_eq!(both.len(), 2, "{shown}");
    assert!(
        lines.iter().any(|l| l == both[0]) && both[0].contains("<unfinished ...>"),
        "{shown}"
    );
    assert_eq!(both[1], lines[resumed]);
    let more: Value =
        serde_json::from_str(&browser.text("document.getElementById('more').textContent"))
            .expect("JSON");
    assert_eq!(
        (&more["call"], &more["result"]),
        (&"futex".into(), &0.into())
    );
    // Who unlocked it is one click away.
    let buttons = "[...document.querySelectorAll('#links button')]";
    browser.value(&format!(
        "{buttons}.find(b => b.textContent.startsWith('futex')).click()"
    ));
    browser.until("document.getElementById('line').textContent.includes('FUTEX_WAKE') || document.getElementById('line').textContent.includes('thread ends')");
    browser.until(&format!(
        "{buttons}.some(b => b.textContent.includes('to event {resumed} of'))"
    ));
    went_well(&mut browser);
}

#[test]
fn zoom_and_search() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("sync_mutex"), &[]);
    let lines = dumped(&place, &recording.dir);
    let mut browser = Browser::start(&place);
    let view = View::start(&place, &recording.dir);
    browser.go(&view.url);
    drawn(&mut browser);
    assert_eq!(
        (window(&mut browser, "from"), window(&mut browser, "to")),
        (0.0, lines.len() as f64)
    );
    assert!(
        window(&mut browser, "level") > 0.0,
        "too small a trace for levels of detail"
    );
    browser.wheel(700.0, 300.0, -900.0);
    browser.until("document.body.dataset.from > 0");
    let (from, to) = (window(&mut browser, "from"), window(&mut browser, "to"));
    assert!(to - from < lines.len() as f64 / 10.0, "{from} {to}");
    drawn(&mut browser);
    // By keys: to the right, and everything again.
    browser.key("ArrowRight", "");
    browser.until(&format!("document.body.dataset.from > {from}"));
    browser.key("0", "0");
    browser.until("document.body.dataset.from === '0'");
    // Every word has to be there: the name of a call, and part of an argument.
    let words = "clone CLONE_SETTLS";
    let all: Vec<usize> = (0..lines.len())
        .filter(|i| lines[*i].contains("CLONE_SETTLS"))
        .collect();
    browser.value("document.getElementById('query').focus()");
    browser.types(words);
    for hit in [all[0], all[1], all[2]] {
        browser.key("Enter", "\r");
        browser.until(&format!(
            "document.getElementById('line').textContent.includes({:?})",
            lines[hit]
        ));
    }
    browser.value("document.getElementById('previous').click()");
    browser.until(&format!(
        "document.getElementById('line').textContent.includes({:?})",
        lines[all[1]]
    ));
    browser.value("document.getElementById('query').value = 'no such words'");
    browser.key("Enter", "\r");
    browser.until("document.getElementById('hits').textContent === 'not found'");
    went_well(&mut browser);
}

/// Writes the page into a file.
fn written(place: &Workplace, trace: &Path) -> PathBuf {
    let file = place.fresh("page").with_extension("html");
    let mut command = place.reprise(["view", "-o"]);
    let out = run(command.arg(&file).arg(trace), None);
    assert!(out.status.success(), "{}", out.describe());
    file
}

#[test]
fn the_page_as_a_file_needs_nobody() {
    let place = Workplace::new();
    let mut browser = Browser::start(&place);
    let tree = Guest::new("process_pipes").args(["4", "400"]);
    for (guest, engine) in [(Guest::new("thread_create"), "serial"), (tree, "order")] {
        let recording = recorded(&place, &guest, &["--engine", engine]);
        let packed = place.fresh("bug").with_extension("reprise");
        let mut command = place.reprise(["pack", "-o"]);
        let out = run(command.arg(&packed).arg(&recording.dir), None);
        assert!(out.status.success(), "{}", out.describe());
        let file = written(&place, &packed);
        browser.go_to_file(&file);
        assert_page(
            &mut browser,
            &place.info(&recording.dir),
            &dumped(&place, &recording.dir),
        );
        assert_eq!(browser.requests(), [format!("file://{}", file.display())]);
        went_well(&mut browser);
    }
}

#[test]
fn traces_that_end_early_and_damaged_ones() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("sync_mutex"), &[]);
    let mut browser = Browser::start(&place);
    let _ = std::fs::remove_file(recording.dir.join("summary.json"));
    let events = recording.dir.join("events.zst");
    let length = std::fs::metadata(&events).expect("events").len();
    let mut shown = 0;
    for part in [9, 5] {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&events)
            .expect("events");
        file.set_len(length * part / 10).expect("cut off");
        let lines = dumped(&place, &recording.dir);
        if lines.is_empty() {
            continue;
        }
        shown += 1;
        let view = View::start(&place, &recording.dir);
        browser.go(&view.url);
        assert_page(&mut browser, &place.info(&recording.dir), &lines);
        let said = browser.text("document.getElementById('incomplete').textContent");
        assert!(said.contains("did not end in order"), "{said}");
        went_well(&mut browser);
    }
    assert!(shown > 0, "nothing was left of the trace at all");
    // Nothing is left: there is a page all the same.
    std::fs::write(&events, "").expect("events");
    let view = View::start(&place, &recording.dir);
    browser.go(&view.url);
    drawn(&mut browser);
    assert!(browser
        .text("document.getElementById('counts').textContent")
        .starts_with("0 events, 1 thread"));
    went_well(&mut browser);
    written(&place, &recording.dir);
}

#[test]
fn texts_of_the_program_are_only_texts() {
    let place = Workplace::new();
    let nasty = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">";
    let guest = Guest::program("/bin/sh").args(["-c", "echo \"$1\"", "sh", nasty]);
    let recording = recorded(&place, &guest, &[]);
    let mut browser = Browser::start(&place);
    let lines = dumped(&place, &recording.dir);
    let said = lines
        .iter()
        .position(|l| l.contains("write(1, \"</script>"))
        .expect("the write");
    let view = View::start(&place, &recording.dir);
    let file = written(&place, &recording.dir);
    let pages = [view.url.clone(), format!("file://{}", file.display())];
    for page in pages {
        browser.go(&format!("{page}#event={said}"));
        browser.until("document.getElementById('line').textContent.includes('</script>')");
        drawn(&mut browser);
        let title = browser.text("document.title");
        assert!(
            title.starts_with("reprise: ") && title.contains("onerror"),
            "{title}"
        );
        assert_eq!(browser.value("document.querySelectorAll('img').length"), 0);
        went_well(&mut browser);
    }
}

/// What is served, request by request.
#[test]
fn tiles_have_every_event_once() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("sync_mutex"), &[]);
    let lines = dumped(&place, &recording.dir);
    let view = View::start(&place, &recording.dir);
    let about = view.json("about");
    assert_eq!(about["events"], lines.len());
    let bins = about["bins"].as_u64().expect("bins");
    let tiles = (lines.len() as u64).div_ceil(bins);
    let mut told = Vec::new();
    for tile in 0..tiles {
        let tile = view.json(&format!("tile/0/{tile}"));
        let rows = tile["rows"].as_array().expect("rows");
        told.extend(
            rows.iter()
                .map(|r| r[3].as_str().expect("a line").to_string()),
        );
    }
    assert!(told == lines, "the tiles say something else than dump");
    for level in 1..about["levels"].as_u64().expect("levels") {
        let width = bins * about["zoom"].as_u64().expect("zoom").pow(level as u32);
        let tiles = (lines.len() as u64).div_ceil(width);
        let counts = (0..tiles).flat_map(|tile| {
            let tile = view.json(&format!("tile/{level}/{tile}"));
            let bins = tile["bins"].as_array().expect("bins").clone();
            bins.into_iter()
                .map(|bin| bin[3].as_u64().expect("a count"))
        });
        assert_eq!(counts.sum::<u64>(), lines.len() as u64, "level {level}");
    }
    let last = lines.len() - 1;
    assert_eq!(view.json(&format!("event/{last}"))["kind"], "end");
}

/// What only a replay knows: where threads were at an event, what was written at which, and how to debug there.
#[test]
fn a_place_of_the_recording_is_looked_at() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("mutex_contention"), &[]);
    let lines = dumped(&place, &recording.dir);
    let view = View::start(&place, &recording.dir);
    let pieces = view.json("output");
    let pieces = pieces.as_array().expect("a list");
    let text: String = pieces.iter().filter_map(|p| p[3].as_str()).collect();
    assert_eq!(text, recording.run.text());
    for piece in pieces {
        let event = piece[1].as_u64().expect("an event") as usize;
        assert!(lines[event].contains("write(1, "), "{}", lines[event]);
    }
    let event = pieces[0][1].as_u64().expect("an event");
    let stacks = view.json(&format!("stacks/{event}"));
    let threads = stacks["threads"].as_array().expect("threads");
    assert_eq!(threads[0]["thread"], stacks["thread"]);
    let frames = threads[0]["frames"].to_string();
    assert!(
        frames.contains("write") && frames.contains("mutex_contention.c"),
        "{frames}"
    );
    let session = view.json("about")["session"].clone();
    let session = session.as_str().expect("words");
    let dir = recording.dir.display();
    assert_eq!(session, format!("reprise replay -d {dir} --at"));
    // In the page.
    let mut browser = Browser::start(&place);
    browser.go(&view.url);
    drawn(&mut browser);
    browser.value("document.getElementById('written').click()");
    browser.until("document.querySelector('#output span')");
    let shown = browser.text("document.getElementById('output').textContent");
    assert_eq!(shown, recording.run.text());
    browser.value("document.querySelector('#output span').click()");
    browser.until("document.querySelectorAll('#links .action').length === 2");
    assert_eq!(browser.text("location.hash"), format!("#event={event}"));
    browser.value("document.querySelectorAll('#links .action')[0].click()");
    browser.until("document.getElementById('more').textContent.includes('mutex_contention.c')");
    browser.value("document.querySelectorAll('#links .action')[1].click()");
    browser.until(&format!(
        "document.getElementById('more').textContent.startsWith('{session} {}')",
        event + 1
    ));
    went_well(&mut browser);
    // A recording that has no such places.
    let order = recorded(
        &place,
        &Guest::new("mutex_contention"),
        &["--engine", "order"],
    );
    let view = View::start(&place, &order.dir);
    assert!(view.json("about")["session"].is_null());
    assert!(view.get("stacks/1").0.starts_with("HTTP/1.1 404 "));
    assert!(view.get("output").0.starts_with("HTTP/1.1 500 "));
}

#[test]
fn odd_requests() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("hello"), &[]);
    let view = View::start(&place, &recording.dir);
    let (path, port) = (view.path().to_string(), view.port);
    let host = format!("Host: 127.0.0.1:{port}");
    let (head, body) = view.get("");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("text/html"),
        "{head}"
    );
    assert!(
        head.contains("Content-Security-Policy: default-src 'none'"),
        "{head}"
    );
    assert!(
        body.contains("<canvas") && body.ends_with("</html>\n"),
        "{body}"
    );
    for (request, status) in [
        (format!("GET {path}about HTTP/1.1\r\n{host}\r\n\r\n"), 200),
        (format!("GET {path}about?x=1 HTTP/1.0\n{host}\n\n"), 200),
        (
            format!("GET {path}about HTTP/1.1\r\nhOsT:  localhost:{port} \r\n\r\n"),
            200,
        ),
        // Without the secret, or with another one.
        (format!("GET / HTTP/1.1\r\n{host}\r\n\r\n"), 404),
        (format!("GET /about HTTP/1.1\r\n{host}\r\n\r\n"), 404),
        (
            format!("GET /{}/about HTTP/1.1\r\n{host}\r\n\r\n", "0".repeat(32)),
            404,
        ),
        // Another site's name that leads here.
        (
            format!("GET {path}about HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n"),
            403,
        ),
        (format!("GET {path}about HTTP/1.1\r\n\r\n"), 403),
        (
            format!("GET {path}about HTTP/1.1\r\n{host}\r\nOrigin: http://evil.example\r\n\r\n"),
            403,
        ),
        (
            format!(
                "GET {path}about HTTP/1.1\r\n{host}\r\nOrigin: http://127.0.0.1:{port}\r\n\r\n"
            ),
            200,
        ),
        (
            format!("POST {path}about HTTP/1.1\r\n{host}\r\nContent-Length: 3\r\n\r\nabc"),
            405,
        ),
        (format!("GET {path}about HTTP/2\r\n{host}\r\n\r\n"), 505),
        ("nonsense\r\n\r\n".into(), 400),
        ("\r\n".into(), 400),
        ("\0\u{ff}\r\n\r\n".into(), 400),
        (
            format!(
                "GET {path}about HTTP/1.1\r\nX: {}\r\n\r\n",
                "x".repeat(20_000)
            ),
            431,
        ),
    ] {
        let answer = view.say(&request);
        let told = answer.split(' ').nth(1).and_then(|w| w.parse().ok());
        assert_eq!(told, Some(status), "{request:?}: {answer:?}");
        let secret = path.trim_matches('/');
        assert!(status == 200 || !answer.contains(secret), "{answer}");
    }
    for nothing in [
        "tile/0/1",
        "tile/1/0",
        "tile/0/18446744073709551615",
        "tile/99/0",
        "tile/4294967296/0",
        "tile/-1/0",
        "tile/0",
        "tile/0/0/0",
        "event/99999999",
        "event/-1",
        "event/",
        "../about",
        "%2e%2e/about",
        "about/",
        "page.js",
        "//",
    ] {
        let (head, _) = view.get(nothing);
        assert!(head.starts_with("HTTP/1.1 404 "), "{nothing}: {head}");
    }
    let head = view.say(&format!("HEAD {path} HTTP/1.1\r\n{host}\r\n\r\n"));
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
}

#[test]
fn connections_that_end_in_the_middle_or_stay() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("sync_mutex"), &[]);
    let mut view = View::start(&place, &recording.dir);
    let request = format!(
        "GET {}tile/0/0 HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n",
        view.path(),
        view.port
    );
    // Closed before, in and behind the request, with the answer unread.
    for length in [0, 1, 20, request.len() - 1, request.len()] {
        for _ in 0..20 {
            let mut stream = view.connect();
            stream
                .write_all(&request.as_bytes()[..length])
                .expect("a listener");
        }
    }
    // Who only connects keeps nobody out: the oldest are given up.
    let mut idle: Vec<TcpStream> = (0..200).map(|_| view.connect()).collect();
    let (head, _) = view.get("about");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let limit = Some(hang_limit());
    idle[0].set_read_timeout(limit).expect("a socket");
    assert_eq!(idle[0].read(&mut [0]).expect("its end"), 0);
    drop(idle);
    // When they are gone it serves again.
    let since = std::time::Instant::now();
    while !view.get("about").0.starts_with("HTTP/1.1 200 ") {
        assert!(
            since.elapsed() < hang_limit(),
            "HANG: it never served again"
        );
    }
    assert!(
        view.running.child.try_wait().expect("wait").is_none(),
        "it ended"
    );
}

/// Stopped and continued (Ctrl-Z, a frozen container), it still answers who had connected before.
#[test]
fn a_stopped_server_goes_on() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("sync_mutex"), &[]);
    let view = View::start(&place, &recording.dir);
    let mut early = view.connect();
    let pid = view.running.pid();
    // A thread of its own waits for what the connection says.
    let waits = |call: String| call.starts_with(&format!("{} ", libc::SYS_recvfrom));
    until_a_task(pid, "syscall", waits);
    // SAFETY: it is a child that was not waited for.
    let signal = |signal| assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    signal(libc::SIGSTOP);
    until_a_task(pid, "stat", |stat| stat.contains(") T "));
    signal(libc::SIGCONT);
    // Another connection is served, so that the process runs again.
    assert!(view.get("about").0.starts_with("HTTP/1.1 200 "));
    let request = format!(
        "GET {}about HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n",
        view.path(),
        view.port
    );
    early.write_all(request.as_bytes()).expect("a listener");
    let mut answer = String::new();
    early.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// Waits until this file of one of the process's threads says so.
fn until_a_task(pid: i32, file: &str, says: impl Fn(String) -> bool) {
    let since = std::time::Instant::now();
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let read = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join(file)).ok();
    while !tasks().flatten().filter_map(read).any(&says) {
        assert!(
            since.elapsed() < hang_limit(),
            "HANG: no thread says so in {file}"
        );
        std::thread::yield_now();
    }
}

#[test]
fn ports() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("hello"), &[]);
    let port = free_port().to_string();
    let mut command = place.reprise(["view", "--no-browser", "--port", &port]);
    let view = View::of(Running::start_reading(command.arg(&recording.dir), None));
    assert_eq!(view.port.to_string(), port);
    // Nobody else's address leads there.
    assert!(
        TcpStream::connect(("127.0.0.2", view.port)).is_err(),
        "it listens elsewhere, too"
    );
    // A port that somebody has.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let mut command = place.reprise(["view", "--no-browser", "--port", &port]);
    let out = run(command.arg(&recording.dir), None);
    out.assert_own_failure(OWN_FAILURE);
    assert!(out.said().contains(&port), "{}", out.describe());
    // No trace, and nowhere to write.
    let empty = place.fresh_dir("empty");
    run(place.reprise(["view", "--no-browser"]).arg(&empty), None).assert_own_failure(OWN_FAILURE);
    let nowhere = place.fresh("nowhere").join("page.html");
    let mut command = place.reprise(["view", "-o"]);
    run(command.arg(nowhere).arg(&recording.dir), None).assert_own_failure(OWN_FAILURE);
}

#[test]
fn it_opens_a_browser() {
    let place = Workplace::new();
    let recording = recorded(&place, &Guest::new("hello"), &[]);
    // A browser that tells where it was sent.
    let (bin, told) = (place.fresh_dir("bin"), place.fresh("told"));
    let made = run(
        std::process::Command::new(system_program("mkfifo")).arg(&told),
        None,
    );
    assert!(made.status.success(), "{}", made.describe());
    let script = format!("#!/bin/sh\necho \"$@\" > {}\n", told.display());
    let opener = bin.join("xdg-open");
    std::fs::write(&opener, script).expect("a script");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let usual = std::env::var("PATH").expect("PATH");
    let mut command = place.reprise(["view"]);
    command
        .arg(&recording.dir)
        .env("PATH", format!("{}:{usual}", bin.display()));
    let view = View::of(Running::start_reading(&mut command, None));
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(std::fs::read_to_string(told)));
    let sent = receiver
        .recv_timeout(hang_limit())
        .expect("no browser was opened");
    assert_eq!(sent.expect("the address").trim(), view.url);
}
