//! Files of proc(5) as text, and what stands in those that all ask for. The names of programs and threads are in them, and are bytes: whoever wants only text
//! takes a process whose name is none for one that isn't there.

mod stat;
mod status;
mod whereabouts;

pub use stat::Stat;
pub use status::Status;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::str::FromStr;
pub use whereabouts::Whereabouts;

/// The file's text; what is no UTF-8 in it is replaced.
///
/// # Errors
/// When it can't be read, as where the process has ended.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

/// What a process calls itself (proc_pid_comm(5)).
///
/// # Errors
/// When it has ended.
pub fn name_of(pid: impl Display) -> io::Result<String> {
    let mut name = text(format!("/proc/{pid}/comm"))?;
    name.truncate(name.strip_suffix('\n').map_or(name.len(), str::len));
    Ok(name)
}

/// All processes that there are.
pub fn processes<T: FromStr>() -> impl Iterator<Item = T> {
    numbers("/proc").into_iter().flatten()
}

/// The threads of a process (proc_pid_task(5)).
///
/// # Errors
/// When it has ended and was reaped.
pub fn threads_of<T: FromStr>(pid: impl Display) -> io::Result<impl Iterator<Item = T>> {
    numbers(&format!("/proc/{pid}/task"))
}

/// The children of all threads of a process, zombies too; none of one that has ended.
pub fn children_of<T: FromStr>(pid: impl Display) -> Vec<T> {
    let threads = threads_of::<u32>(&pid).into_iter().flatten();
    let of = |tid: u32| children_of_thread(&pid, tid);
    threads.flat_map(of).collect()
}

/// The children that a thread has made (proc_tid_children(5)), zombies too; none of one that has ended.
pub fn children_of_thread<T: FromStr>(pid: impl Display, tid: impl Display) -> Vec<T> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
    let list = list.unwrap_or_default();
    let children = list.split_ascii_whitespace().map(str::parse);
    children.filter_map(Result::ok).collect()
}

/// Entries of a directory that are numbers.
fn numbers<T: FromStr>(dir: &str) -> io::Result<impl Iterator<Item = T>> {
    let entries = std::fs::read_dir(dir)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_is_found_and_is_gone() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let pid = child.id();
        let me = std::process::id();
        assert!(processes().any(|other: u32| other == pid));
        let tid = rustix::thread::gettid().as_raw_pid();
        assert!(threads_of(me).expect("this process").any(|t: i32| t == tid));
        assert!(children_of(me).contains(&pid));
        assert!(children_of_thread(me, tid).contains(&pid));
        child.kill().expect("a child");
        child.wait().expect("its end");
        assert!(!children_of(me).contains(&pid));
        assert!(threads_of::<u32>(pid).is_err() && name_of(pid).is_err());
    }

    #[test]
    fn a_thread_may_have_any_name() {
        let named = std::thread::spawn(|| {
            rustix::thread::set_name(c"a\xffb").expect("a name");
            let read = |file: &str| text(format!("/proc/thread-self/{file}"));
            let name = name_of("thread-self").expect("a name");
            assert_eq!(name, "a\u{fffd}b");
            ["comm", "stat", "status"].map(|file| read(file).expect("text"))
        });
        let all = named.join().expect("a thread");
        assert!(
            all.iter().all(|text| text.contains("a\u{fffd}b")),
            "{all:?}"
        );
    }
}
