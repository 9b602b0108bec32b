//! Describes the machine, for whoever reads the figures.

use std::fs::read_to_string;

/// The machine in a few words a line.
pub fn describe() -> Vec<String> {
    let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|l| l.starts_with(name));
        line.and_then(|l| l.split_once(": "))
            .map_or("unknown", |(_, v)| v.trim())
    };
    let flags = field("flags");
    let has = |flag: &str| flags.split(' ').any(|f| f == flag);
    let kind = if has("hypervisor") {
        "virtual machine"
    } else {
        "machine"
    };
    let counters = if has("arch_perfmon") {
        "with hardware performance counters"
    } else {
        "without hardware performance counters"
    };
    let online = crate::program::processors(0).len();
    let memory = read_to_string("/proc/meminfo").unwrap_or_default();
    let memory: u64 = memory
        .lines()
        .next()
        .and_then(|l| l.split_whitespace().nth(1))
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    let release = read_to_string("/etc/os-release").unwrap_or_default();
    let release = release
        .lines()
        .find_map(|l| l.strip_prefix("PRETTY_NAME="))
        .unwrap_or("unknown")
        .trim_matches('"');
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // What a vendor puts behind the version names a build, and says nothing here.
    let kernel = kernel.trim().split('-').next().unwrap_or("unknown");
    vec![
        format!("{kind} {counters}"),
        format!("{}, {online} processors", field("model name")),
        format!("{:.0} GB of memory", memory as f64 * 1024.0 / 1e9),
        format!("Linux {kernel}, {release}"),
    ]
}

/// Today, as 2024-12-31 (UTC).
pub fn today() -> String {
    // SAFETY: plain calls that fill structs of ours.
    let t = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut t: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&now, &mut t);
        t
    };
    format!("{}-{:02}-{:02}", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday)
}
