//! Tries interleavings of threads that share memory: a seeded scheduler decides before each atomic access who goes on.
//!
//! Threads are [fibers](fiber) of one thread, so that a schedule takes some microseconds. Memory is that of x86-64: a store that
//! is not sequentially consistent waits in its thread's store buffer, and is seen by others later, in the order of the thread's stores.
//! A thread can be killed before any access, with its whole process; what is in its store buffer still gets out. What it wrote in a
//! schedule is undone after it, so that models may be as large as the session is.
//!
//! To add a protocol: write it in this crate as plain functions of words from [`crate::atomic`], which in tests are the scheduler's; what else it
//! does, sleeping and waking among it, comes in by a trait (`Kernel` of `schedule/lock.rs`, `Around` and `Waiter` of `rounds/mod.rs`). Beside it,
//! `schedules.rs` has a model whose threads do all that may be done, says what must be true at each step and in the end, and gives both to
//! [`explore`]; and a test that breaks the protocol in a few places by what is written to a word (`Spoil`), each of which has to be found.
//!
//! Why not a crate: none of those there are kills threads, and all want types of their own in the place of words in shared memory.

pub mod fiber;
pub mod words;

use core::cell::{Cell, RefCell};
use fiber::{switch, Fiber};
use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, thread_local};

/// Steps after which a schedule counts as one that never ends.
const MOST_STEPS: u32 = 200_000;

/// In so many stops a thread is put aside once, ...
const ASIDE: u64 = 16;
/// ... for so many steps of the others at most.
const LONGEST_ASIDE: u64 = 400;

/// Schedules within which a broken protocol has to be found out.
pub const FOUND_WITHIN: u64 = 20_000;

/// How many schedules are tried of each protocol: 20,000, or as many as `REPRISE_TEST_SCHEDULES` says.
pub fn schedules() -> u64 {
    let told = std::env::var("REPRISE_TEST_SCHEDULES").ok();
    told.and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

/// What is done to a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It is read.
    Load,
    /// It is written.
    Store,
    /// Both at once, which also waits for all stores before it.
    Update,
}

/// An access to a word.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Where it is.
    pub address: usize,
    /// Its size.
    pub bytes: usize,
    /// What is done.
    pub kind: Kind,
    sequential: bool,
}

impl Access {
    /// Is it one to this word?
    pub fn is_to<T>(&self, word: &T) -> bool {
        self.address == word as *const T as usize
    }
}

/// What a test breaks: of an access, and what was there before, which value is written in the place of this one (the last); `None` for nothing at all.
pub type Spoil<'a> = &'a dyn Fn(&Access, u64, u64) -> Option<u64>;

/// How threads are chosen in a schedule.
#[derive(Clone, Copy)]
pub struct Chances {
    /// In so many accesses another thread goes on once.
    switch: u64,
    /// In so many a store gets out of its buffer once.
    drain: u64,
    /// In so many a process is killed once.
    kill: u64,
}

#[derive(Clone, Copy)]
enum Doing<'a> {
    Runs,
    /// It sleeps on the word at this address; whether it wakes by itself some time.
    Sleeps(usize, bool),
    /// It goes on when that is so.
    Until(&'a dyn Fn() -> bool),
    Over,
    Killed,
}

struct Thread<'a> {
    body: &'a dyn Fn(),
    process: usize,
    doing: Doing<'a>,
    /// Its last sleep ended because somebody woke it.
    woken: bool,
    /// Before this step it goes on only if nobody else can: it may be as slow as one whose processor somebody else has.
    aside_until: u32,
    /// Stores that others don't see yet: address, bytes, value.
    stores: VecDeque<(usize, usize, u64)>,
}

/// A schedule that is being tried.
struct Schedule<'a> {
    seed: u64,
    random: u64,
    chances: Chances,
    spoil: Option<Spoil<'a>>,
    threads: Vec<Thread<'a>>,
    running: Option<usize>,
    steps: u32,
    kills_left: u32,
    killed: u64,
    failure: Option<String>,
    /// What was there before each write: address, bytes, value.
    journal: Vec<(usize, usize, u64)>,
    main_at: usize,
}

thread_local! {
    static NOW: RefCell<Option<Schedule<'static>>> = const { RefCell::new(None) };
    static FIBERS: RefCell<Vec<Fiber>> = const { RefCell::new(Vec::new()) };
    static TRIED: Cell<bool> = const { Cell::new(false) };
}

fn peek(address: usize, bytes: usize) -> u64 {
    // SAFETY: an atomic word of so many bytes; one thread of the kernel's runs all of the schedule.
    unsafe {
        match bytes {
            1 => (address as *const u8).read_volatile().into(),
            4 => (address as *const u32).read_volatile().into(),
            _ => (address as *const u64).read_volatile(),
        }
    }
}

fn poke(address: usize, bytes: usize, value: u64) {
    // SAFETY: as above.
    unsafe {
        match bytes {
            1 => (address as *mut u8).write_volatile(value as u8),
            4 => (address as *mut u32).write_volatile(value as u32),
            _ => (address as *mut u64).write_volatile(value),
        }
    }
}

impl Schedule<'_> {
    /// The next random number below `n` (splitmix64).
    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    fn write(&mut self, address: usize, bytes: usize, value: u64) {
        self.journal.push((address, bytes, peek(address, bytes)));
        poke(address, bytes, value);
    }

    /// The oldest store of a thread gets out; false: there is none.
    fn drain_one(&mut self, i: usize) -> bool {
        let Some((address, bytes, value)) = self.threads[i].stores.pop_front() else {
            return false;
        };
        self.write(address, bytes, value);
        true
    }

    fn drain(&mut self, i: usize) {
        while self.drain_one(i) {}
    }

    fn kill(&mut self, process: usize) {
        self.killed |= 1 << process;
        for i in 0..self.threads.len() {
            if self.threads[i].process == process && !matches!(self.threads[i].doing, Doing::Over) {
                self.drain(i);
                self.threads[i].doing = Doing::Killed;
            }
        }
    }

    /// Before an access: what else happens? True: the running thread stops here for now.
    fn happens(&mut self) -> bool {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            self.failure.get_or_insert("it never ends".to_string());
        }
        if self.failure.is_some() {
            return true;
        }
        if self.below(self.chances.drain) == 0 {
            let i = self.below(self.threads.len() as u64) as usize;
            self.drain_one(i);
        }
        if self.kills_left != 0 && self.below(self.chances.kill) == 0 {
            self.kills_left -= 1;
            // Process 0 is never killed.
            let of = self.threads.iter().map(|t| t.process).max().unwrap_or(0) as u64;
            if of != 0 {
                let process = 1 + self.below(of) as usize;
                self.kill(process);
                let me = self.running.map(|i| self.threads[i].process);
                if me == Some(process) {
                    return true;
                }
            }
        }
        let stops = self.below(self.chances.switch) == 0;
        if stops && self.below(ASIDE) == 0 {
            let until = self.steps + self.below(LONGEST_ASIDE) as u32;
            if let Some(i) = self.running {
                self.threads[i].aside_until = until;
            }
        }
        stops
    }
}

fn with<R>(f: impl FnOnce(&mut Schedule<'static>) -> R) -> Option<R> {
    NOW.with(|now| now.borrow_mut().as_mut().map(f))
}

/// Back to the scheduler; the calling fiber goes on when it is chosen.
fn stop() {
    let (save, to) = FIBERS.with(|fibers| {
        let running = with(|s| (s.running, s.main_at));
        let Some((Some(i), main)) = running else {
            unreachable!("no fiber runs")
        };
        (fibers.borrow_mut()[i].save(), main)
    });
    // SAFETY: the scheduler waits there for this fiber.
    unsafe { switch(save, to) };
}

/// Makes an access: a step of the schedule, if one is being tried. `change` says what is written, if anything; what was there before.
fn access(a: Access, mut change: impl FnMut(u64) -> Option<u64>) -> u64 {
    let in_fiber = TRIED.with(Cell::get).then(|| with(|s| s.running.is_some()));
    if in_fiber == Some(Some(true)) && with(Schedule::happens) == Some(true) {
        stop();
    }
    let made = with(|s| {
        let mine = s.running;
        if let (Some(i), true) = (mine, a.kind == Kind::Update) {
            s.drain(i);
        }
        let buffered = mine.and_then(|i| {
            let of_it = |(at, _, _): &&(usize, usize, u64)| *at == a.address;
            s.threads[i].stores.iter().rev().find(of_it).map(|s| s.2)
        });
        let old = buffered.unwrap_or_else(|| peek(a.address, a.bytes));
        let new = change(old);
        let new = match (s.spoil, mine) {
            (Some(spoil), Some(_)) => new.and_then(|v| spoil(&a, old, v)),
            _ => new,
        };
        if let Some(v) = new {
            match mine {
                Some(i) if a.kind == Kind::Store => {
                    s.threads[i].stores.push_back((a.address, a.bytes, v));
                    if a.sequential {
                        s.drain(i);
                    }
                }
                _ => s.write(a.address, a.bytes, v),
            }
        }
        old
    });
    made.unwrap_or_else(|| {
        let old = peek(a.address, a.bytes);
        if let Some(v) = change(old) {
            poke(a.address, a.bytes, v);
        }
        old
    })
}

extern "C" fn runs(i: usize) {
    let body = with(|s| s.threads[i].body);
    let ended = catch_unwind(AssertUnwindSafe(|| body.map(|f| f())));
    with(|s| {
        s.drain(i);
        s.threads[i].doing = Doing::Over;
        if let Err(why) = ended {
            let text = why.downcast_ref::<String>().cloned();
            let text = text.or_else(|| why.downcast_ref::<&str>().map(|t| t.to_string()));
            s.failure.get_or_insert(text.unwrap_or_default());
        }
    });
    loop {
        stop();
    }
}

/// A step without an access, of a thread that does something else meanwhile.
pub fn step() {
    if with(Schedule::happens) == Some(true) {
        stop();
    }
}

/// Goes on when that is so: for who looks again and again.
pub fn until(what: &dyn Fn() -> bool) {
    // SAFETY: it is only used while the calling fiber waits here.
    let what: &'static dyn Fn() -> bool = unsafe { core::mem::transmute(what) };
    with(|s| {
        if let Some(i) = s.running {
            s.drain(i);
            s.threads[i].doing = Doing::Until(what);
        }
    });
    stop();
}

/// futex(2), FUTEX_WAIT. `limited`: it has a time limit. True: somebody woke the thread.
pub fn sleep(word: &words::AtomicU32, value: u32, limited: bool) -> bool {
    step();
    let sleeps = with(|s| {
        let i = s.running?;
        s.drain(i);
        let address = word.as_ptr() as usize;
        let is = peek(address, 4) == value.into();
        if is {
            s.threads[i].doing = Doing::Sleeps(address, limited);
            s.threads[i].woken = false;
        }
        is.then_some(i)
    });
    let Some(i) = sleeps.flatten() else {
        return false;
    };
    stop();
    with(|s| s.threads[i].woken) == Some(true)
}

/// The calling thread ends here and at once, as by exit_group(2).
pub fn end() -> ! {
    with(|s| {
        if let Some(i) = s.running {
            s.drain(i);
            s.threads[i].doing = Doing::Over;
        }
    });
    loop {
        stop();
    }
}

/// Some time passes: what threads have stored so far is seen by all.
pub fn time_passes() {
    step();
    with(|s| (0..s.threads.len()).for_each(|i| s.drain(i)));
}

/// futex(2), FUTEX_WAKE: up to `n`, how many.
pub fn wake(word: &words::AtomicU32, n: u32) -> u32 {
    step();
    let woken = with(|s| {
        if let Some(i) = s.running {
            s.drain(i);
        }
        let address = word.as_ptr() as usize;
        let mut woken = 0;
        for t in &mut s.threads {
            if woken < n && matches!(t.doing, Doing::Sleeps(at, _) if at == address) {
                t.doing = Doing::Runs;
                t.woken = true;
                woken += 1;
            }
        }
        woken
    });
    woken.unwrap_or(0)
}

/// Was this process killed?
pub fn is_killed(process: usize) -> bool {
    with(|s| s.killed & 1 << process != 0) == Some(true)
}

/// Are all threads over of these processes?
pub fn all_over(processes: core::ops::Range<usize>) -> bool {
    let over = |t: &Thread| {
        !processes.contains(&t.process) || matches!(t.doing, Doing::Over | Doing::Killed)
    };
    with(|s| s.threads.iter().all(over)) == Some(true)
}

/// A random number below `n`, of this schedule.
pub fn random(n: u64) -> u64 {
    with(|s| s.below(n)).unwrap_or(0)
}

/// Threads to be tried together, each with the number of its process. Process 0 is never killed.
pub type Threads<'a> = &'a [(usize, &'a dyn Fn())];

/// Tries `n` schedules. Each begins with `before`, and `after` says what must be true then. What went wrong, in which schedule.
///
/// # Errors
/// When a thread panics, all that are left wait for each other, or it never ends.
pub fn explore(
    n: u64,
    kills: u32,
    spoil: Option<Spoil>,
    before: &dyn Fn(),
    threads: Threads,
    after: &dyn Fn(),
) -> Result<(), String> {
    TRIED.with(|t| t.set(true));
    FIBERS.with(|f| f.borrow_mut().resize_with(threads.len(), Fiber::new));
    for seed in 0..n {
        let threads = threads.iter().map(|(process, body)| Thread {
            body: *body,
            process: *process,
            doing: Doing::Runs,
            woken: false,
            aside_until: 0,
            stores: VecDeque::new(),
        });
        let schedule = Schedule {
            seed,
            random: seed.wrapping_mul(0xd6e8_feb8_6659_fd93),
            chances: Chances {
                switch: 2 + 6 * (seed % 3),
                drain: 2 + 6 * (seed / 3 % 3),
                kill: 20 << (seed / 9 % 6),
            },
            spoil,
            threads: threads.collect(),
            running: None,
            steps: 0,
            kills_left: kills,
            killed: 0,
            failure: None,
            journal: Vec::new(),
            main_at: 0,
        };
        // SAFETY: it is taken away again before this function returns.
        let schedule: Schedule<'static> = unsafe { core::mem::transmute(schedule) };
        NOW.with(|now| *now.borrow_mut() = Some(schedule));
        before();
        run();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            if with(|s| s.failure.is_none()) == Some(true) {
                after();
            }
        }));
        let Some(mut s) = NOW.with(|now| now.borrow_mut().take()) else {
            unreachable!("a schedule was tried")
        };
        for (address, bytes, value) in s.journal.drain(..).rev() {
            poke(address, bytes, value);
        }
        if let Err(why) = ended {
            let text = why.downcast_ref::<String>().cloned();
            s.failure = Some(text.unwrap_or_else(|| "what must be true then is not".to_string()));
        }
        if let Some(why) = s.failure {
            TRIED.with(|t| t.set(false));
            return Err(format!("schedule {}: {why}", s.seed));
        }
    }
    TRIED.with(|t| t.set(false));
    Ok(())
}

/// Who goes on; `None`: nobody can. Not within [`with`]: what a thread waits for may be said by words.
fn choose() -> Option<usize> {
    let n = with(|s| s.threads.len())?;
    loop {
        let from = random(n as u64) as usize;
        let in_order = (0..n).map(|k| (from + k) % n);
        let is_aside = |i: &usize| with(|s| s.threads[*i].aside_until > s.steps) == Some(true);
        let (last, first): (Vec<usize>, Vec<usize>) = in_order.partition(is_aside);
        for i in first.into_iter().chain(last) {
            let goes = match with(|s| s.threads[i].doing)? {
                Doing::Runs => true,
                Doing::Until(what) => what(),
                _ => false,
            };
            if goes {
                with(|s| s.threads[i].doing = Doing::Runs);
                return Some(i);
            }
        }
        if with(|s| (0..n).any(|i| s.drain_one(i)))? {
            continue;
        }
        // A time limit is for what a death has left behind, and for nothing else.
        return with(|s| {
            let late = |i: &usize| matches!(s.threads[*i].doing, Doing::Sleeps(_, true));
            let i = (0..n)
                .map(|k| (from + k) % n)
                .find(late)
                .filter(|_| s.killed != 0)?;
            s.threads[i].doing = Doing::Runs;
            Some(i)
        })?;
    }
}

/// Runs the threads of the schedule until all are over.
fn run() {
    let n = with(|s| s.threads.len()).unwrap_or(0);
    FIBERS.with(|f| {
        for (i, fiber) in f.borrow_mut().iter_mut().enumerate().take(n) {
            fiber.begins(runs, i);
        }
    });
    while let Some(i) = choose() {
        let (to, save) = FIBERS.with(|f| {
            let at = f.borrow()[i].at();
            let save = with(|s| {
                s.running = Some(i);
                core::ptr::from_mut(&mut s.main_at)
            });
            (at, save)
        });
        let Some(save) = save else { break };
        // SAFETY: the fiber begins, or stopped there.
        unsafe { switch(save, to) };
        with(|s| s.running = None);
        if with(|s| s.failure.is_some()) == Some(true) {
            return;
        }
    }
    with(|s| {
        let left = |t: &&Thread| !matches!(t.doing, Doing::Over | Doing::Killed);
        if s.threads.iter().any(|t| left(&t)) {
            let waits: Vec<usize> = (0..n).filter(|i| left(&&s.threads[*i])).collect();
            s.failure = Some(format!("threads {waits:?} wait for ever"));
        }
        (0..n).for_each(|i| s.drain(i));
    });
}
