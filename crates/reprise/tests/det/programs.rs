//! `reprise run`: unmodified programs with threads, from Debian's packages, do what they do by themselves, and the same in every run: on an idle machine, on a
//! busy one, with delays.
//!
//! `scripts/setup-tests.sh` installs them.

use crate::common;

use common::det::{once_with, under_load};
use common::{built, full, run, sources, system_program, Guest, Run, Workplace};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of text that compress and sort like real ones.
fn text_file(place: &Workplace, megabytes: usize) -> PathBuf {
    let path = place.fresh("input");
    let mut text = String::with_capacity((megabytes << 20) + 100);
    let mut x: u64 = 88_172_645_463_325_252;
    while text.len() < megabytes << 20 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let (a, b, c) = (x as u32, x >> 40, text.len() % 977);
        let _ = writeln!(text, "{a:08x} some words between, then {b} and {c}");
    }
    std::fs::write(&path, text).expect("an input file");
    path
}

/// Runs a program some times, and returns what it printed, the same each time.
fn the_same(place: &Workplace, guest: &Guest) -> Vec<u8> {
    let runs = if full() { 20 } else { 2 };
    let once = |n: usize, flags: &[&str]| -> Vec<u8> {
        let r = once_with(place, guest, flags, n);
        assert!(r.status.success(), "{}: {}", guest.label(), r.describe());
        r.stdout
    };
    let mut all: BTreeSet<_> = (0..runs).map(|n| once(n, &[])).collect();
    all.insert(once(runs, &["--delays", "3"]));
    all.extend(under_load(|| {
        (0..runs).map(|n| once(n, &[])).collect::<Vec<_>>()
    }));
    let sizes: Vec<_> = all.iter().map(Vec::len).collect();
    assert_eq!(
        all.len(),
        1,
        "{}: outputs of {sizes:?} bytes",
        guest.label()
    );
    all.pop_first().unwrap_or_default()
}

/// A compressor's output, the same always, gives back its input.
fn compresses(program: &str, args: &[&str], back: &[&str]) {
    let place = Workplace::new();
    let input = text_file(&place, 3);
    let guest = Guest::program(system_program(program)).args(args.iter().copied());
    let packed = the_same(&place, &guest.args([&input]));
    let wanted = std::fs::read(&input).expect("the input");
    assert!(packed.len() < wanted.len());
    let mut command = Command::new(system_program(back[0]));
    let unpacked = run(command.args(&back[1..]), Some(&packed));
    assert!(unpacked.status.success(), "{}", unpacked.describe());
    assert!(unpacked.stdout == wanted, "{program} {args:?}");
}

#[test]
fn pbzip2() {
    for threads in ["-p2", "-p4"] {
        compresses("pbzip2", &[threads, "-1", "-b1", "-kc"], &["bzip2", "-dc"]);
    }
}

#[test]
fn xz() {
    for threads in ["-T2", "-T4"] {
        let args = [threads, "-1", "--block-size=512KiB", "-kc"];
        compresses("xz", &args, &["xz", "-dc"]);
    }
}

#[test]
fn zstd() {
    compresses("zstd", &["-T2", "-B500K", "-c"], &["zstd", "-dc"]);
}

#[test]
fn pigz() {
    for threads in ["2", "4"] {
        compresses("pigz", &["-p", threads, "-c"], &["gzip", "-dc"]);
    }
}

#[test]
fn sort() {
    let place = Workplace::new();
    // So many lines that it makes threads.
    let input = text_file(&place, 16);
    for threads in ["--parallel=2", "--parallel=4"] {
        let guest = Guest::program(system_program("sort"))
            .args([threads, "-S100M"])
            .args([&input])
            .env("LC_ALL", "C");
        let text = std::fs::read_to_string(&input).expect("the input");
        let mut wanted: Vec<&str> = text.lines().collect();
        wanted.sort_unstable();
        let sorted = String::from_utf8(the_same(&place, &guest)).expect("text");
        assert!(sorted.lines().eq(wanted), "{threads}");
    }
}

#[test]
fn ripgrep() {
    let place = Workplace::new();
    let guest = Guest::program(system_program("rg"))
        .args(["-j", "4", "-n", "--no-config", "det::"])
        .args([sources().join("../../crates/runtime/src")]);
    let found = the_same(&place, &guest);
    assert!(found.iter().filter(|b| **b == b'\n').count() > 20);
}

/// Locks, queues, pools, and a race that only the interpreter's own turns decide. Nothing in it has an order that follows from addresses, as sets have: where
/// the interpreter's objects are depends on its environment, which is an input.
#[test]
fn python_threads() {
    const SCRIPT: &str = "
import threading, queue, concurrent.futures, hashlib
def work(n):
    h = hashlib.sha256()
    for i in range(2000): h.update(b'%d' % (n * i))
    return h.hexdigest()[:8]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert list(pool.map(work, range(8))) == [work(n) for n in range(8)]
    done, all = [], [pool.submit(work, n) for n in range(8)]
    for n, f in enumerate(all): f.add_done_callback(lambda f, n=n: done.append((n, f.result())))
print(sorted(done), [n for n, _ in done])
q, out, lock = queue.Queue(4), [], threading.Lock()
def takes(me):
    while (x := q.get()) is not None:
        with lock: out.append((me, x))
threads = [threading.Thread(target=takes, args=(me,)) for me in range(3)]
for t in threads: t.start()
for i in range(60): q.put(i)
for t in threads: q.put(None)
for t in threads: t.join()
assert sorted(x for _, x in out) == list(range(60))
print(out)
count = 0
def adds():
    global count
    for _ in range(20000):
        v = count
        v += 1
        count = v
threads = [threading.Thread(target=adds) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
print(count)
";
    let guest = Guest::program(system_program("python3"))
        .args(["-c", SCRIPT])
        // Else the order of sets is random, as an input.
        .env("PYTHONHASHSEED", "0");
    the_same(&Workplace::new(), &guest);
}

/// One that has a thread of its own when asked to.
#[test]
fn sqlite() {
    let script = "pragma threads=4; create table t(a, b);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
        insert into t select i, (i * 7919) % 10007 from n;
        create index by_b on t(b, a); select count(*), sum(a * b) from t; select * from t order by b, a limit 3;";
    let guest = Guest::program(system_program("sqlite3")).args([":memory:", script]);
    let text = String::from_utf8(the_same(&Workplace::new(), &guest)).expect("text");
    assert!(text.contains("\n20000|"), "{text}");
}

/// Compiles a program, and runs it natively and under the engine.
fn compiled(
    place: &Workplace,
    compiler: &str,
    args: &[&str],
    source: &str,
    ending: &str,
) -> PathBuf {
    let (file, program) = (
        place.path().join(format!("p.{ending}")),
        place.path().join("p"),
    );
    std::fs::write(&file, source).expect("a source");
    let mut command = Command::new(compiler);
    let made = run(command.args(args).arg(&file).arg("-o").arg(&program), None);
    assert!(made.status.success(), "{}", made.describe());
    program
}

#[test]
fn cpp_async_and_threads() {
    const SOURCE: &str = "
#include <condition_variable>
#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
int main() {
    std::vector<std::future<long>> all;
    for (int n = 0; n < 8; n++)
        all.push_back(std::async(std::launch::async, [n] {
            std::map<std::string, long> m;
            for (int i = 0; i < 500; i++) m[std::to_string(i * n % 97)] += i;
            return (long)m.size();
        }));
    long sizes = 0;
    for (auto &f : all) sizes += f.get();
    std::mutex m;
    std::condition_variable more;
    std::vector<int> box, order;
    bool over = false;
    std::vector<std::thread> threads;
    for (int me = 0; me < 4; me++)
        threads.emplace_back([&, me] {
            std::unique_lock l(m);
            for (;;) {
                more.wait(l, [&] { return over || !box.empty(); });
                if (box.empty()) return;
                order.push_back(box.back() * 10 + me);
                box.pop_back();
            }
        });
    for (int i = 0; i < 50; i++) {
        std::lock_guard l(m);
        box.push_back(i);
        more.notify_one();
    }
    { std::lock_guard l(m); over = true; }
    more.notify_all();
    for (auto &t : threads) t.join();
    printf(\"%ld %zu:\", sizes, order.size());
    for (int o : order) printf(\" %d\", o);
    puts(\"\");
}
";
    let place = Workplace::new();
    let program = compiled(
        &place,
        "g++",
        &["-std=gnu++17", "-O1", "-pthread"],
        SOURCE,
        "cpp",
    );
    let text = the_same(&place, &Guest::program(program));
    assert!(String::from_utf8_lossy(&text).contains(" 50:"), "{text:?}");
}

/// Work stealing, as rayon does it: each has a queue, and takes of others' when its own is empty.
#[test]
fn rust_work_stealing() {
    const SOURCE: &str = "
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
const WORKERS: usize = 4;
struct Pool { queues: Vec<Mutex<VecDeque<u64>>>, left: AtomicUsize, sleep: (Mutex<()>, Condvar) }
impl Pool {
    fn take(&self, me: usize) -> Option<u64> {
        if let Some(n) = self.queues[me].lock().unwrap().pop_back() { return Some(n) }
        (1..WORKERS).find_map(|k| self.queues[(me + k) % WORKERS].lock().unwrap().pop_front())
    }
    fn give(&self, me: usize, n: u64) {
        self.left.fetch_add(1, SeqCst);
        self.queues[me].lock().unwrap().push_back(n);
        self.sleep.1.notify_one();
    }
}
fn main() {
    let pool = Arc::new(Pool {
        queues: (0..WORKERS).map(|_| Mutex::default()).collect(),
        left: AtomicUsize::new(0), sleep: Default::default(),
    });
    pool.give(0, 1 << 8);
    let workers: Vec<_> = (0..WORKERS).map(|me| {
        let pool = pool.clone();
        thread::spawn(move || {
            let (mut sum, mut done) = (0u64, 0);
            while pool.left.load(SeqCst) != 0 {
                let Some(n) = pool.take(me) else {
                    let guard = pool.sleep.0.lock().unwrap();
                    let _ = pool.sleep.1.wait_timeout(guard, std::time::Duration::from_micros(200));
                    continue;
                };
                if n > 1 { pool.give(me, n / 2); pool.give(me, n - n / 2); } else { sum += n }
                done += 1;
                pool.left.fetch_sub(1, SeqCst);
            }
            (sum, done)
        })
    }).collect();
    let all: Vec<(u64, i32)> = workers.into_iter().map(|w| w.join().unwrap()).collect();
    assert_eq!(all.iter().map(|(s, _)| s).sum::<u64>(), 1 << 8);
    println!(\"{all:?}\");
}
";
    let place = Workplace::new();
    let program = compiled(&place, "rustc", &["--edition=2021", "-O"], SOURCE, "rs");
    the_same(&place, &Guest::program(program));
}

/// What can't be run is refused at once, with the reason.
#[test]
fn other_runtimes_are_refused() {
    let place = Workplace::new();
    let refused = |program: &Path, args: &[&str]| -> Run {
        let guest = Guest::program(program).args(args.iter().copied());
        let r = once_with(&place, &guest, &[], 0);
        assert_eq!(r.status.code(), Some(125), "{}", r.describe());
        r
    };
    for (r, why) in [
        (refused(&built("go_channels"), &[]), "Go"),
        (refused(&system_program("java"), &["-version"]), "Java"),
        // Only those of them that make threads.
        (
            refused(&built("mutex_contention-static"), &[]),
            "statically",
        ),
    ] {
        assert!(r.said().contains(why), "{}", r.describe());
    }
    let alone = once_with(&place, &Guest::new("hello-static"), &[], 0);
    assert!(alone.status.success(), "{}", alone.describe());
}
