//! Other programs from Rust: Command with pipes, environment, directory and groups; statuses and signals; pipelines by hand.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::thread;

fn main() {
    let out = Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).output().unwrap();
    assert_eq!((out.status.code(), &out.stdout[..], &out.stderr[..]), (Some(3), &b"out\n"[..], &b"err\n"[..]));
    let out = Command::new("sh")
        .args(["-c", "echo $COLOUR; pwd; env | wc -l"])
        .env_clear()
        .env("COLOUR", "green")
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/usr")
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.starts_with("green\n/usr\n"), "{text}");
    assert_eq!(Command::new("/nowhere/at/all").spawn().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Command::new("/etc/passwd").spawn().unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(Command::new("true").current_dir("/nowhere").status().unwrap_err().kind(), ErrorKind::NotFound);
    println!("commands: done");

    // A pipeline: more than fits into the pipes goes through it, so both ends have to be served.
    let mut first = Command::new("tr").args(["a-z", "A-Z"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut second = Command::new("sort").arg("-r").stdin(first.stdout.take().unwrap()).stdout(Stdio::piped()).spawn().unwrap();
    let mut into = first.stdin.take().unwrap();
    let writer = thread::spawn(move || {
        for i in 0..20_000 {
            writeln!(into, "line {i:05}").unwrap();
        }
    });
    let mut sorted = String::new();
    second.stdout.take().unwrap().read_to_string(&mut sorted).unwrap();
    writer.join().unwrap();
    assert!(first.wait().unwrap().success() && second.wait().unwrap().success());
    let lines: Vec<&str> = sorted.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[19_999]), (20_000, "LINE 19999", "LINE 00000"));
    println!("pipeline: done");

    // A dialogue, then a kill.
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let (mut to, mut from) = (cat.stdin.take().unwrap(), BufReader::new(cat.stdout.take().unwrap()));
    for i in 0..20 {
        writeln!(to, "question {i}").unwrap();
        let mut answer = String::new();
        from.read_line(&mut answer).unwrap();
        assert_eq!(answer, format!("question {i}\n"));
    }
    assert!(cat.try_wait().unwrap().is_none());
    cat.kill().unwrap();
    let status = cat.wait().unwrap();
    assert_eq!((status.code(), status.signal(), status.core_dumped()), (None, Some(9), false));
    let status = Command::new("sh").args(["-c", "kill -TERM $$"]).status().unwrap();
    assert_eq!(status.signal(), Some(15));
    // Something of ours between fork and exec, which may also fail.
    // SAFETY: what runs in the child allocates nothing.
    let refused = unsafe { Command::new("true").pre_exec(|| Err(std::io::Error::from_raw_os_error(42))).spawn() };
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(42));
    // Many at once, each from a thread.
    let sum: i32 = thread::scope(|s| {
        let threads: Vec<_> =
            (0..6).map(|i| s.spawn(move || Command::new("sh").arg("-c").arg(format!("exit {i}")).status().unwrap().code().unwrap())).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(sum, 15);
    println!("process {}", std::process::id());
}
