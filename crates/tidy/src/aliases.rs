//! Who may make references that the compiler does not check. In what runs inside the program there is one type for values whose threads are kept
//! apart by something that their type doesn't know (`machine::guarded`): a second one would have rules that nobody finds.

use crate::text::code_of;

/// The type itself; and the arena, of which nobody ever gets a reference.
const MAY_SHARE: [&str; 2] = ["runtime/src/machine/guarded.rs", "code/src/arena.rs"];

/// Where a thread's block may become a reference that changes it, how often, and for whom. From the sources of the runtime on.
const DOORS: [(&str, usize, &str); 17] = [
    ("entry/gate.rs", 1, "a call of the program's"),
    ("entry/signal.rs", 1, "a signal"),
    ("entry/reenter.rs", 1, "a thread that stood"),
    ("sync/hook/shim.rs", 2, "a hooked function, and its way out"),
    ("sync/locked/enter.rs", 5, "a locked instruction"),
    ("sync/spin/gate.rs", 1, "a loop that waits"),
    ("races/watch.rs", 1, "a function that is watched"),
    ("engines/det/spin.rs", 1, "a thread out of a cycle"),
    (
        "engines/det/ownership_fault.rs",
        1,
        "a thread that wants a page",
    ),
    (
        "engines/det/log/world.rs",
        1,
        "a divergence: nobody goes on",
    ),
    ("isolate/proxy.rs", 1, "an exec: nobody goes on"),
    (
        "gate/clone.rs",
        2,
        "a thread that is made, and its first steps",
    ),
    ("gate/stand.rs", 1, "a thread that stands"),
    ("gate/copy.rs", 1, "a thread that stands"),
    ("gate/ptrace.rs", 1, "a thread that another one has stopped"),
    (
        "gate/processor.rs",
        1,
        "a thread whose affinity another one asks for",
    ),
    ("races/shadow.rs", 3, "a block of shadow memory"),
];

/// Where something is still lent for good, as `&'static mut`, how often, and what it is. Nobody sees how long such a reference is in use: what is new
/// is lent for the time of a call (`isolate/reuse.rs` does so). From `crates` on.
const LENT: [(&str, usize, &str); 18] = [
    ("heap/src/own.rs", 6, "a heap, its slabs, its chunks"),
    ("heap/src/large.rs", 2, "the header of a large block"),
    ("heap/src/chunk.rs", 1, "a chunk"),
    ("heap/src/api.rs", 1, "the calling thread's large blocks"),
    ("runtime/src/thread/current.rs", 1, "a block, at a door"),
    ("runtime/src/gate/clone.rs", 2, "a block, at a door"),
    ("runtime/src/gate/processor.rs", 1, "a block, at a door"),
    ("runtime/src/gate/ptrace.rs", 1, "a block, at a door"),
    ("runtime/src/entry/start.rs", 1, "a block, at a door"),
    ("runtime/src/isolate/commit.rs", 2, "a thread's copies"),
    ("runtime/src/races/mod.rs", 3, "the detector, its threads"),
    ("runtime/src/races/shadow.rs", 2, "shadow memory"),
    (
        "runtime/src/log/epoch/mod.rs",
        2,
        "a thread's part of a log",
    ),
    (
        "runtime/src/engines/det/streams.rs",
        4,
        "an image of a stream",
    ),
    ("runtime/src/engines/serial/follow.rs", 1, "a thread's part"),
    ("runtime/src/engines/serial/writes.rs", 1, "lists of pages"),
    (
        "runtime/src/engines/serial/cut/record.rs",
        2,
        "the walk to a place",
    ),
    (
        "runtime/src/engines/serial/cut/replay.rs",
        1,
        "the place that is sought",
    ),
];

/// How often a file lends something for good that it may not lend so. `path` begins with the crate's folder.
pub fn lent_for_good(path: &str, source: &str) -> usize {
    let lent = code_of(source).matches("&'static mut ").count();
    let may = LENT.iter().find(|l| l.0 == path).map_or(0, |l| l.1);
    lent.saturating_sub(may)
}

/// How often a file makes a reference to a thread's block that it may not make. `path` begins with the crate's folder.
pub fn blocks_taken(path: &str, source: &str) -> usize {
    let home = ["runtime/src/thread/mod.rs", "runtime/src/thread/current.rs"];
    if home.contains(&path) {
        return 0;
    }
    let code = code_of(source);
    let taken = code.matches("take_block").count() - imports(&code);
    let made = code.matches("as *mut Block").count();
    let door = |d: &&(&str, usize, &str)| path.strip_prefix("runtime/src/") == Some(d.0);
    let may = DOORS.iter().find(door).map_or(0, |d| d.1);
    (taken + made).saturating_sub(may)
}

/// How often imports name it, as it is called.
fn imports(code: &str) -> usize {
    let mut uses = code.split("\nuse ").skip(1);
    let named = uses.by_ref().filter_map(|rest| {
        let tree = rest.split(';').next()?;
        Some(tree.matches("take_block").count() - tree.matches("take_block as").count())
    });
    named.sum()
}

/// How many types a file shares between threads on its own word. `path` begins with the crate's folder.
pub fn shared_by_word(path: &str, source: &str) -> usize {
    if MAY_SHARE.contains(&path) {
        return 0;
    }
    let code = code_of(source);
    let statics = code.match_indices("static mut ");
    let mutable = statics.filter(|(at, _)| !code[..*at].ends_with('\''));
    let claims = code.split("unsafe impl").skip(1).filter(|rest| {
        let head = rest.split('{').next().unwrap_or_default();
        let head: Vec<&str> = words(head).collect();
        head.windows(2).any(|w| w == ["Sync", "for"])
    });
    mutable.count() + claims.count()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|w| !w.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_a_block_in_the_midst_is_found() {
        let door = "\nuse crate::thread::{session, take_block};\nfn f() { let t = unsafe { take_block() }; }";
        assert_eq!(blocks_taken("runtime/src/entry/gate.rs", door), 0);
        let twice = format!("{door}\nfn g() {{ unsafe {{ take_block() }}; }}");
        assert_eq!(blocks_taken("runtime/src/entry/gate.rs", &twice), 1);
        for source in [
            door,
            "\nuse crate::thread::take_block as block;",
            "fn f() { crate::thread::take_block() }",
            "fn f() { let f: unsafe fn() -> &'static mut Block = thread::take_block; }",
            "fn f() { unsafe { &mut *(block_address(1) as *mut Block) } }",
        ] {
            assert_eq!(
                blocks_taken("runtime/src/log/ring.rs", source),
                1,
                "{source}"
            );
        }
        let other = "\nuse crate::thread::current;\n// take_block\nfn f(t: &mut Block) { current().slot(); }";
        assert_eq!(blocks_taken("runtime/src/log/ring.rs", other), 0);
    }

    #[test]
    fn what_is_shared_by_word_is_found() {
        for source in [
            "struct Pool(UnsafeCell<u8>);\nunsafe impl Sync for Pool {}",
            "unsafe impl<T: Copy> core::marker::Sync for Held<T> {}",
            "static mut COUNT: u32 = 0;",
        ] {
            assert_eq!(shared_by_word("runtime/src/a.rs", source), 1, "{source}");
            assert_eq!(shared_by_word(MAY_SHARE[0], source), 0);
        }
        for source in [
            "unsafe impl Send for List {}\n// unsafe impl Sync for List {}",
            "unsafe impl GlobalAlloc for Arena { fn f() { let _: &dyn Sync; } }",
            "fn f() -> &'static mut u8 { static N: u8 = 0; }",
        ] {
            assert_eq!(shared_by_word("runtime/src/a.rs", source), 0, "{source}");
        }
    }
}
