//! `reprise doctor`: what this machine offers, what Reprise will use of it, and what it would like; on one screen.
//!
//! Nothing is believed that can be tried: each facility is used once, in a child process where using it leaves traces.

mod probe;

use crate::cli::DoctorArgs;
use crate::exit::AlreadySaid;
use crate::human;
use anyhow::Context;
use reprise_console::Output;
use reprise_launch::{cpu, features};
use reprise_trace::{Catalog, Machine};
use rustix::process::Resource;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The oldest kernel: Syscall User Dispatch came with it.
const KERNEL_FLOOR: (u32, u32) = (5, 11);
/// Room for a trace below which it is worth a word, in bytes.
const ROOM_WANTED: u64 = 1 << 30;
/// Descriptors that the recorder itself needs, with room to spare.
const DESCRIPTORS_NEEDED: u64 = 64;

/// What a check found.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// It is there, or as it should be.
    Ok,
    /// It is not there.
    Missing,
}

/// How much a check matters.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
enum Need {
    /// Without it nothing can be recorded.
    Essential,
    /// Used when it is there.
    Used,
    /// For information: Reprise does without.
    Unneeded,
}

/// One line of the report.
#[derive(Serialize, Debug)]
struct Check {
    name: &'static str,
    need: Need,
    status: Status,
    /// What was seen.
    found: String,
    /// What follows from it.
    consequence: String,
}

impl Check {
    fn new(name: &'static str, need: Need, ok: bool, found: impl Into<String>) -> Check {
        let status = if ok { Status::Ok } else { Status::Missing };
        Check {
            name,
            need,
            status,
            found: found.into(),
            consequence: String::new(),
        }
    }

    /// What follows when it is there, and when it is missing.
    fn means(mut self, ok: &str, missing: &str) -> Check {
        let text = if self.status == Status::Ok {
            ok
        } else {
            missing
        };
        self.consequence = text.into();
        self
    }

    /// A facility that was tried.
    fn tried(name: &'static str, need: Need, outcome: Result<(), String>) -> Check {
        match outcome {
            Ok(()) => Check::new(name, need, true, "works"),
            Err(why) => Check::new(name, need, false, why),
        }
    }
}

/// `reprise doctor`
///
/// # Errors
/// When something essential is missing; the report has said what.
pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let checks = examine();
    let ready = checks
        .iter()
        .all(|c| c.need != Need::Essential || c.status == Status::Ok);
    let text = match args.json {
        true => json(&checks, ready)?,
        false => report(&checks, ready),
    };
    Output
        .write_all(text.as_bytes())
        .context("can't print the report")?;
    match ready {
        true => Ok(()),
        false => Err(AlreadySaid.into()),
    }
}

fn json(checks: &[Check], ready: bool) -> anyhow::Result<String> {
    let all = serde_json::json!({
        "ready": ready,
        "version": env!("CARGO_PKG_VERSION"),
        "machine": Machine::current(),
        "checks": checks,
    });
    Ok(serde_json::to_string_pretty(&all).context("can't write JSON")? + "\n")
}

fn report(checks: &[Check], ready: bool) -> String {
    let machine = Machine::current();
    let mut text = format!("reprise {} on {}\n", env!("CARGO_PKG_VERSION"), machine.cpu);
    let groups = [
        (Need::Essential, "needed"),
        (Need::Used, "used when there"),
        (Need::Unneeded, "not needed"),
    ];
    // One width for all groups.
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (need, title) in groups {
        rows.push(vec![format!("{title}:")]);
        for check in checks.iter().filter(|c| c.need == need) {
            let mark = match (check.status, need) {
                (Status::Ok, _) => "ok",
                (Status::Missing, Need::Essential) => "MISSING",
                (Status::Missing, _) => "no",
            };
            let said = match check.consequence.as_str() {
                "" => check.found.clone(),
                consequence => format!("{}: {consequence}", check.found),
            };
            rows.push(vec![format!("  {}", check.name), mark.into(), said]);
        }
    }
    text.push_str(&human::table(&rows, &[]));
    text.push_str(match ready {
        true => "recording and replay work here\n",
        false => "recording does not work here: see MISSING\n",
    });
    text
}

/// All checks, in the order of the report.
fn examine() -> Vec<Check> {
    let mut checks = vec![
        kernel(),
        Check::tried("syscall dispatch", Need::Essential, probe::syscall_user_dispatch()).means(
            "system calls are seen without ptrace",
            "a kernel with CONFIG_GENERIC_ENTRY, 5.11 or later, is needed, and a seccomp filter that lets prctl(59) pass",
        ),
        Check::tried("rdtsc trapping", Need::Essential, probe::tsc_trapping()).means(
            "clocks read by rdtsc are recorded",
            "the seccomp filter must let prctl(PR_SET_TSC) pass",
        ),
        Check::tried("ptrace", Need::Essential, probe::ptrace()).means(
            "used at exec only",
            "allow it: kernel.yama.ptrace_scope below 3, or docker run --cap-add=SYS_PTRACE",
        ),
        Check::tried("memfd", Need::Essential, probe::memfd())
            .means("the session's shared memory", "the seccomp filter must let memfd_create pass"),
    ];
    checks.extend(trace_directory());
    checks.extend([
        Check::tried("cpuid trapping", Need::Used, probe::cpuid_faulting()).means(
            "features that can't be replayed are hidden from programs",
            "cpuid is replaced in the code of programs and their libraries instead; code that they generate or emulate sees the processor as it is",
        ),
        Check::tried("personality", Need::Used, probe::no_randomisation()).means(
            "two recordings of a program have the same addresses",
            "address randomisation stays on while recording; replay is exact all the same",
        ),
        limits(),
        processors(),
        seccomp(),
        Check::tried("perf counters", Need::Unneeded, probe::perf_counters()),
        page_tracking(),
        Check::tried("userfaultfd", Need::Unneeded, probe::userfaultfd()),
        Check::tried(
            "process_vm_readv",
            Need::Unneeded,
            probe::process_vm_readv(),
        ),
        yama(),
    ]);
    checks
}

fn kernel() -> Check {
    let release = Machine::current().kernel;
    let ok = parse_release(&release).is_some_and(|v| v >= KERNEL_FLOOR);
    let (major, minor) = KERNEL_FLOOR;
    Check::new("kernel", Need::Essential, ok, format!("Linux {release}"))
        .means("", &format!("{major}.{minor} or later is needed"))
}

/// Major and minor number of a kernel's release.
fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn page_tracking() -> Check {
    let (scan, soft) = (probe::pagemap_scan(), probe::soft_dirty());
    let found = match (&scan, &soft) {
        (Ok(()), _) => "PAGEMAP_SCAN".to_string(),
        (Err(_), Ok(())) => "soft-dirty bits".to_string(),
        (Err(why), Err(_)) => format!("neither PAGEMAP_SCAN ({why}) nor soft-dirty bits"),
    };
    let ok = scan.is_ok() || soft.is_ok();
    Check::new("page tracking", Need::Unneeded, ok, found)
}

fn limits() -> Check {
    let (files, stack) = (
        probe::limit(Resource::Nofile),
        probe::limit(Resource::Stack),
    );
    let show = |limit: u64, text: String| {
        if limit == libc::RLIM_INFINITY {
            "unlimited".into()
        } else {
            text
        }
    };
    let found = format!(
        "{} descriptors, stack {}",
        show(files, files.to_string()),
        show(stack, human::size(stack))
    );
    Check::new("limits", Need::Used, files >= DESCRIPTORS_NEEDED, found).means(
        "",
        &format!("raise `ulimit -n` to {DESCRIPTORS_NEEDED} at least"),
    )
}

fn processors() -> Check {
    let online = Machine::current().cpus;
    let allowed = probe::allowed_cpus();
    let level = features::level(&cpu::processor().leaves);
    let found = format!(
        "{allowed} of {online} CPUs, x86-64-v{level}, XSAVE area {} bytes",
        probe::xsave_size()
    );
    let rtm = if probe::has_rtm() {
        ", RTM (hidden from the program)"
    } else {
        ""
    };
    Check::new("processor", Need::Used, allowed > 0, found + rtm)
        .means("serial recording uses one", "")
}

fn seccomp() -> Check {
    let mode = probe::process_status("Seccomp").unwrap_or_default();
    let found = match mode.as_str() {
        "0" => "no filter in force",
        "1" => "strict mode",
        "2" => "a filter is in force (a container's?)",
        _ => "not known",
    };
    Check::new("seccomp", Need::Used, mode != "1", found)
        .means("", "nothing can be recorded in strict mode")
}

fn yama() -> Check {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let found = match scope.as_deref().map(str::trim) {
        Ok("0") => "ptrace_scope 0: any process of yours".to_string(),
        Ok("1") => "ptrace_scope 1: descendants only, which is enough".to_string(),
        Ok("2") => "ptrace_scope 2: administrators only".to_string(),
        Ok("3") => "ptrace_scope 3: nobody".to_string(),
        Ok(other) => format!("ptrace_scope {other}"),
        Err(_) => "not in this kernel".to_string(),
    };
    Check::new("yama", Need::Unneeded, true, found)
}

/// Where traces would go: can one be written there, is there room, can files be shared.
fn trace_directory() -> Vec<Check> {
    let catalog = match Catalog::from_env() {
        Ok(catalog) => catalog,
        Err(error) => {
            return vec![Check::new(
                "trace directory",
                Need::Essential,
                false,
                error.to_string(),
            )]
        }
    };
    let root = catalog.root();
    let place = existing(root);
    let writable = probe::writable(&place);
    let shown = root.display().to_string();
    let mut found = human::tame(&shown, 60);
    let free = probe::free_space(&place);
    if let Some(free) = free {
        found.push_str(&format!(", {} free", human::size(free)));
    }
    let directory = Check::new("trace directory", Need::Essential, writable.is_ok(), found);
    let directory = directory.means(
        if free.is_some_and(|f| f < ROOM_WANTED) {
            "not much room; --max-size bounds a trace"
        } else {
            ""
        },
        "set REPRISE_TRACE_DIR to a directory that you can write to",
    );
    let reflink = Check::tried("reflinks", Need::Used, probe::reflink(&place)).means(
        "mapped files are shared with their originals",
        "mapped files are copied, once for all traces",
    );
    vec![directory, reflink]
}

/// The path itself, or the nearest directory above it that exists.
fn existing(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let found = path.ancestors().find(|p| p.is_dir());
    found.unwrap_or(Path::new("/")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(parse_release("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(parse_release("5.4"), Some((5, 4)));
        assert_eq!(parse_release("5"), None);
        assert!(parse_release("5.11.0").unwrap() >= KERNEL_FLOOR);
        assert!(parse_release("5.10.99").unwrap() < KERNEL_FLOOR);
        assert!(parse_release("10.0").unwrap() >= KERNEL_FLOOR);
    }

    #[test]
    fn the_report_fits_on_a_screen_and_marks_what_is_missing() {
        let mut checks = examine();
        let text = report(&checks, true);
        assert!(text.lines().count() <= 25, "{text}");
        checks[0].status = Status::Missing;
        let text = report(&checks, false);
        assert!(
            text.contains("MISSING") && text.contains("does not work"),
            "{text}"
        );
    }

    #[test]
    fn a_directory_that_is_not_there_is_looked_for_above() {
        assert_eq!(
            existing(Path::new("/proc/self/nothing/here")),
            Path::new("/proc/self")
        );
        assert_eq!(existing(Path::new("/")), Path::new("/"));
    }
}
