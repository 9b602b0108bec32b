//! The classes of what the `order` engine sees of a program by hooks and patches, each of which a test can do without (`record --test-without`):
//! recordings of programs that need it are then not replayed exactly.

/// A class: its name, and how the names of functions that it hooks begin (none: what is patched instead).
pub type Class = (&'static str, &'static [&'static [u8]]);

/// All of them.
pub const CLASSES: [Class; 16] = [
    ("mutex", &[b"pthread_mutex_"]),
    ("cond", &[b"pthread_cond_"]),
    ("rwlock", &[b"pthread_rwlock_"]),
    ("sem", &[b"sem_"]),
    ("barrier", &[b"pthread_barrier_"]),
    ("once", &[b"pthread_once"]),
    ("spin", &[b"pthread_spin_"]),
    ("static", &[b"__cxa_guard_"]),
    ("join", &[b"pthread_join"]),
    ("cancel", &[b"pthread_cancel", b"pthread_setcancelstate"]),
    (
        "malloc",
        &[
            b"malloc",
            b"calloc",
            b"realloc",
            b"free",
            b"memalign",
            b"aligned_alloc",
            b"posix_memalign",
            b"valloc",
            b"pvalloc",
        ],
    ),
    ("atomic", &[b"__tsan_atomic"]),
    ("thread-local", &[b"__tls_get_addr"]),
    (THREAD_ID, &[]),
    (LOCKED, &[]),
    (LEARNED, &[]),
];

/// Loads of the word by which libc knows that a thread is gone.
pub const THREAD_ID: &str = "thread-id";
/// Instructions that change memory in one step.
pub const LOCKED: &str = "locked";
/// Loads that a replay learned of.
pub const LEARNED: &str = "learned";

/// The bit of the class with this name.
pub fn bit(name: &str) -> Option<u64> {
    let i = CLASSES.iter().position(|(n, _)| *n == name)?;
    Some(1 << i)
}

/// Is the class with this name in the set?
pub fn holds(set: u64, name: &str) -> bool {
    bit(name).is_some_and(|b| set & b != 0)
}

/// Is this function of a class in the set?
pub fn holds_function(set: u64, function: &[u8]) -> bool {
    set != 0
        && CLASSES.iter().enumerate().any(|(i, (_, beginnings))| {
            set >> i & 1 != 0 && beginnings.iter().any(|b| function.starts_with(b))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_belong_to_classes() {
        let set = bit("mutex").expect("a class") | bit("malloc").expect("a class");
        assert!(holds_function(set, b"pthread_mutex_lock"));
        assert!(holds_function(set, b"free"));
        assert!(!holds_function(set, b"pthread_cond_wait"));
        assert!(!holds_function(0, b"free"));
        assert!(holds(set, "mutex") && !holds(set, LOCKED));
        assert_eq!(bit("none"), None);
    }
}
