//! Who may make references that the compiler does not check. In what runs inside the program there is one type for values whose threads are kept
//! apart by something that their type doesn't know (`machine::guarded`): a second one would have rules that nobody finds.

use crate::text::code_of;

/// The type itself; and the arena, of which nobody ever gets a reference.
const MAY_SHARE: [&str; 2] = ["runtime/src/machine/guarded.rs", "place/src/arena.rs"];

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
