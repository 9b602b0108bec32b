//! Programs that are set-user-ID or set-group-ID: under a tracer without privileges the kernel runs them as their caller (execve(2)).

use crate::proc_files::Status;
use crate::shared::SharedSession;
use libc::pid_t;
use reprise_abi::notes;
use rustix::fs::StatVfsMountFlags;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

/// Notes it when the program that a process became would have run as somebody else without us.
pub fn note_loss(pid: pid_t, shared: &SharedSession) {
    if has_lost(pid).unwrap_or(false) {
        shared.session().notes.fetch_or(notes::IDENTITY, Relaxed);
    }
}

fn has_lost(pid: pid_t) -> Option<bool> {
    let link = format!("/proc/{pid}/exe");
    let program = std::fs::metadata(&link).ok()?;
    if program.mode() & (libc::S_ISUID | libc::S_ISGID) == 0 {
        return Some(false);
    }
    let status = Status::of_process(pid).ok()?;
    // Real, effective, saved, of files.
    let effective = |name| status.numbers::<u32>(name)?.get(1).copied();
    let (user, group) = (effective("Uid")?, effective("Gid")?);
    let sets_user = program.mode() & libc::S_ISUID != 0 && program.uid() != user;
    let sets_group = program.mode() & (libc::S_ISGID | libc::S_IXGRP)
        == libc::S_ISGID | libc::S_IXGRP
        && program.gid() != group;
    let allowed = status.number::<u32>("NoNewPrivs")? == 0 && !is_nosuid(&link)?;
    Some((sets_user || sets_group) && allowed)
}

fn is_nosuid(link: &str) -> Option<bool> {
    let path = std::fs::read_link(link).ok()?;
    let about = rustix::fs::statvfs(path).ok()?;
    Some(about.f_flag.contains(StatVfsMountFlags::NOSUID))
}
