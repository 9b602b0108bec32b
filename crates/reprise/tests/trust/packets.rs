//! Debuggers that send what no debugger does: files and processes of whoever replays are none of theirs, whatever they ask for.

use crate::common;

use common::outsider::Outsider;
use common::{run, Guest, Workplace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

/// A debugger's server, and a connection to it.
struct Server {
    child: Child,
    stream: TcpStream,
}

impl Server {
    fn of(place: &Workplace, dir: &Path) -> Server {
        let mut command = place.reprise(["replay", "-d", "--gdb-port", "0"]);
        command
            .arg(dir)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("a server");
        let mut lines = BufReader::new(child.stderr.take().expect("its errors")).lines();
        let line = lines.next().expect("a line").expect("text");
        let port = line.rsplit(':').next().and_then(|p| p.trim().parse().ok());
        let port: u16 = port.expect("a port");
        std::thread::spawn(move || lines.for_each(drop));
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let limit = Some(common::hang_limit());
        stream.set_read_timeout(limit).expect("a limit");
        Server { child, stream }
    }

    /// Sends a packet; the body of the answer. Output of a command (`O`, then digits) comes before that.
    fn ask(&mut self, body: &str) -> String {
        let sum = body.bytes().fold(0u8, u8::wrapping_add);
        write!(self.stream, "${body}#{sum:02x}").expect("sent");
        loop {
            let answer = self.hear(body);
            if !(body.starts_with("qRcmd") && answer.starts_with('O') && answer != "OK") {
                return answer;
            }
        }
    }

    /// The body of the next packet.
    fn hear(&mut self, asked: &str) -> String {
        let mut byte = [0];
        let mut answer = Vec::new();
        let mut begun = false;
        loop {
            let read = self.stream.read_exact(&mut byte);
            read.unwrap_or_else(|e| panic!("no answer to {asked}: {e}"));
            match byte[0] {
                b'$' if !begun => begun = true,
                b'#' if begun => break,
                b if begun => answer.push(b),
                _ => {}
            }
        }
        self.stream.read_exact(&mut [0; 2]).expect("a sum");
        self.stream.write_all(b"+").expect("sent");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Opens a file as gdb does (its File-I/O protocol), with these flags of its own.
    fn open(&mut self, path: &str, flags: u32) -> String {
        self.ask(&format!("vFile:open:{},{flags:x},1b6", hex(path)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|b| format!("{b:02x}")).collect()
}

const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0x200;
const O_TRUNC: u32 = 0x400;

#[test]
fn no_packet_reaches_files_or_processes() {
    let place = Workplace::new();
    let mut outsider = Outsider::new();
    let trace = place.record(&Guest::new("hello"));
    let precious = place.path().join("precious");
    std::fs::write(&precious, "precious").expect("a file");
    let new = place.path().join("new");
    let [precious, new] = [precious, new].map(|p| p.to_str().expect("text").to_string());
    let mut s = Server::of(&place, &trace.dir);
    assert!(s
        .ask("qSupported:multiprocess+;xmlRegisters=i386")
        .contains("PacketSize="));
    let own = s.child.id();
    let parent = std::process::id();
    for path in [
        precious.clone(),
        "/etc/shadow".into(),
        "/etc/passwd".into(),
        "/proc/self/mem".into(),
        "/proc/self/../../etc/passwd".into(),
        format!("/proc/{own}/environ"),
        format!("/proc/{parent}/fd/0"),
        format!("{}/../../../../etc/passwd", trace.dir.display()),
    ] {
        let answer = s.open(&path, 0);
        assert!(answer.starts_with("F-1"), "{path}: {answer}");
    }
    for flags in [
        O_WRONLY,
        O_RDWR,
        O_CREAT,
        O_WRONLY | O_CREAT | O_TRUNC,
        O_TRUNC,
    ] {
        for path in [&precious, &new] {
            let answer = s.open(path, flags);
            assert!(answer.starts_with("F-1"), "{path} {flags:#x}: {answer}");
        }
    }
    // What gdb may open of the trace it may not open for writing.
    let maps = s.open("/proc/1/maps", 0);
    assert!(maps.starts_with('F') && !maps.starts_with("F-1"), "{maps}");
    let answer = s.open("/proc/1/maps", O_RDWR);
    assert!(answer.starts_with("F-1"), "{answer}");
    let victim = outsider.id();
    let fd = maps.trim_start_matches('F').to_string();
    for packet in [
        format!("vFile:unlink:{}", hex(&precious)),
        format!("vFile:pwrite:{fd},0,x"),
        format!("vFile:pread:{fd},7fffffffffffffff,7fffffffffffffff"),
        "vFile:pread:ffffffff,10,0".into(),
        "vFile:close:ffffffff".into(),
        format!("vFile:readlink:{}", hex("/etc/mtab")),
        format!("vAttach;{victim:x}"),
        format!(
            "vRun;{};{};{}",
            hex("/bin/sh"),
            hex("-c"),
            hex(&format!("echo >{new}"))
        ),
        format!("QSetWorkingDir:{}", hex("/")),
        format!("QEnvironmentHexEncoded:{}", hex("LD_PRELOAD=/tmp/x.so")),
        "QStartupWithShell:1".into(),
        format!("Hgp{victim:x}.{victim:x}"),
        format!("Hcp{victim:x}.-1"),
        format!("Tp{victim:x}.{victim:x}"),
        format!("qXfer:exec-file:read:{victim:x}:0,1000"),
        "qXfer:features:read:../../../../etc/passwd:0,1000".into(),
        "qXfer:auxv:read::ffffffffffffffff,ffffffffffffffff".into(),
        "qXfer:siginfo:read::ffffffff,ffffffff".into(),
        format!("qRcmd,{}", hex(&format!("shell echo >{new}"))),
        format!("qRcmd,{}", hex(&format!("checkpoints; echo >{new}"))),
        format!("qRcmd,{}", hex("x".repeat(2000).as_str())),
        "m0,ffffffffffffffff".into(),
        "mffffffffffffffff,8".into(),
        "M0,4:00000000".into(),
        "Z0,0,1".into(),
        "Z2,0,ffffffffffffffff".into(),
        "Z4,7fffffffffff,ffff".into(),
        "P0=ffffffffffffffff".into(),
        "p4141".into(),
        "G00".into(),
        "qSearch:memory:0;ffffffff;41".into(),
        "qCRC:0,ffffffffffffffff".into(),
        "qGetTLSAddr:p1.1,ffffffffffffffff,ffffffffffffffff".into(),
    ] {
        let answer = s.ask(&packet);
        let reads = packet.contains("pread") || packet.contains("Xfer");
        assert!(answer.len() < 1 << 17, "{packet}: {} bytes", answer.len());
        assert!(
            reads || !answer.contains(&hex("root:")),
            "{packet}: {answer}"
        );
        outsider.assert_untouched(&packet);
    }
    assert!(!Path::new(&new).exists());
    let kept = std::fs::read_to_string(&precious).expect("it is there");
    assert_eq!(kept, "precious");
    // The server lives, and the trace is what it was.
    assert!(s
        .ask("qSupported:xmlRegisters=i386")
        .contains("PacketSize="));
    drop(s);
    assert!(place.verify(&trace.dir).status.success());
}

/// A packet without an end: the server hears it for as long as it comes, keeps little of it, and ends with its connection.
#[test]
fn who_sends_without_end_is_heard_with_a_limit() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("hello"));
    let mut s = Server::of(&place, &trace.dir);
    let supported = s.ask("qSupported:xmlRegisters=i386");
    assert!(supported.contains("PacketSize="), "{supported}");
    let size = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let line = status.lines().find(|l| l.starts_with("VmRSS:"));
        let kb = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
        kb.expect("its size")
    };
    let before = size(s.child.id());
    // Nobody reads what it answers to the rest of it: then it does not hear more, either.
    let limit = Some(std::time::Duration::from_secs(1));
    s.stream.set_write_timeout(limit).expect("a limit");
    s.stream.write_all(b"$").expect("sent");
    let noise = [b'x'; 1 << 16];
    let mut pieces = 0..64;
    while pieces.next().is_some() && s.stream.write_all(&noise).is_ok() {}
    let after = size(s.child.id());
    assert!(after < before + (16 << 10), "{before} kB, then {after} kB");
    s.stream
        .shutdown(std::net::Shutdown::Both)
        .expect("it ends");
    let status = common::ended(&mut s.child);
    assert!(status.success(), "{status}");
}

/// What a trace says of its program is no packet, whatever it is.
#[test]
fn what_the_replayed_program_names_is_no_packet() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("hello"));
    // A program's name is text: what a debugger is told of it is that, and no command.
    let manifest = trace.dir.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).expect("a manifest");
    let new = place.path().join("new");
    let evil = format!("a#00$k#6b`touch {}`", new.display());
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let cwd = json["cwd"].as_str().expect("where it was").to_string();
    std::fs::write(&manifest, text.replace(&cwd, &evil)).expect("written");
    let info = run(place.reprise(["info"]).arg(&trace.dir), None);
    assert!(info.status.success(), "{}", info.describe());
    let mut s = Server::of(&place, &trace.dir);
    let answer = s.ask(&format!("vFile:readlink:{}", hex("/proc/1/cwd")));
    // In a file's bytes the characters of the protocol are escaped.
    assert!(answer.starts_with('F') && !answer.contains('$'), "{answer}");
    assert!(s
        .ask("qSupported:xmlRegisters=i386")
        .contains("PacketSize="));
    assert!(!new.exists());
}
