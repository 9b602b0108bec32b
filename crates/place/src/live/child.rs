//! A real program, stepped by ptrace.

use crate::machine::{Machine, Xmm};
use reprise_code::memory::Memory;
use reprise_code::regs::Regs;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A child process that is stopped but while [`Child::step`] runs.
pub struct Child {
    pid: i32,
    memory: File,
}

impl Child {
    /// Starts a program and stops it at its first instruction.
    pub fn spawn(program: &str, args: &[&str]) -> Child {
        let words: Vec<CString> = std::iter::once(&program)
            .chain(args)
            .map(|a| CString::new(*a).unwrap())
            .collect();
        let mut argv: Vec<_> = words.iter().map(|w| w.as_ptr()).collect();
        argv.push(std::ptr::null());
        let envp = [std::ptr::null()];
        // SAFETY: the child makes system calls only, on memory that was prepared before the fork.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                libc::dup2(null, 0);
                libc::dup2(null, 1);
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::execve(argv[0], argv.as_ptr(), envp.as_ptr());
                libc::_exit(127);
            }
            pid
        };
        assert!(pid > 0);
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert!(
            libc::WIFSTOPPED(status),
            "{program} did not start: {status:#x}"
        );
        Child {
            pid,
            memory: File::open(format!("/proc/{pid}/mem")).unwrap(),
        }
    }

    /// One instruction on; false when the program ended or got a signal.
    pub fn step(&mut self) -> bool {
        let mut status = 0;
        // SAFETY: our own child, stopped.
        unsafe {
            libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0);
            libc::waitpid(self.pid, &mut status, 0);
        }
        libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP
    }

    /// Its registers; None when it is gone.
    pub fn regs(&self) -> Option<Regs> {
        // SAFETY: the structure is plain data, filled by the kernel.
        let r = unsafe {
            let mut r: libc::user_regs_struct = std::mem::zeroed();
            if libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &mut r) != 0 {
                return None;
            }
            r
        };
        Some(Regs {
            gpr: [
                r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
                r.r12, r.r13, r.r14, r.r15,
            ],
            rip: r.rip,
            rflags: r.eflags,
            fs_base: r.fs_base,
            gs_base: r.gs_base,
        })
    }
}

impl Memory for Child {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        self.memory.read_exact_at(buf, addr).is_ok()
    }
}

impl Machine for Child {
    fn xmm(&self) -> Xmm {
        // SAFETY: the structure is plain data, filled by the kernel.
        let fp = unsafe {
            let mut fp: libc::user_fpregs_struct = std::mem::zeroed();
            libc::ptrace(libc::PTRACE_GETFPREGS, self.pid, 0, &mut fp);
            fp
        };
        std::array::from_fn(|i| {
            let word = |at: usize| {
                fp.xmm_space[4 * i + at] as u64 | (fp.xmm_space[4 * i + at + 1] as u64) << 32
            };
            [word(0), word(2)]
        })
    }

    fn extended(&self) -> u64 {
        self.xmm()
            .iter()
            .flatten()
            .fold(0, |h: u64, w| (h ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}
