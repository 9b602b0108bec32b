//! The requests of ioctl(2), and what its third argument is for each.
//!
//! A request that is not here is recorded all the same, by the write-tracking fallback, at a higher cost; so here is what
//! ordinary programs use. Any request can reach a driver in user space (FUSE passes on TCGETS like any other), so nearly none is
//! known to be prompt. Requests whose structure names further memory are `unknown` on purpose.

use crate::spec::SubCall;
use crate::syscalls::{class, commands, find, pointee, printed, returns, size, sorted};

commands! {
    /// All requests, by subject.
    pub const ENTRIES(fd, request, argp) {
        // Terminals (tty_ioctl(2)): settings.
        0x5401 TCGETS(out(36)) -> int: emulate, asks;
        0x5402 TCSETS(in(36)) -> int: emulate, restarts;
        0x5403 TCSETSW(in(36)) -> int: emulate, waits, restarts;
        0x5404 TCSETSF(in(36)) -> int: emulate, waits, restarts;
        0x5405 TCGETA(out(18)) -> int: emulate;
        0x5406 TCSETA(in(18)) -> int: emulate, restarts;
        0x5407 TCSETAW(in(18)) -> int: emulate, waits, restarts;
        0x5408 TCSETAF(in(18)) -> int: emulate, waits, restarts;
        0x802c542a TCGETS2(out(44)) -> int: emulate, asks;
        0x402c542b TCSETS2(in(44)) -> int: emulate, restarts;
        0x402c542c TCSETSW2(in(44)) -> int: emulate, waits, restarts;
        0x402c542d TCSETSF2(in(44)) -> int: emulate, waits, restarts;
        0x5456 TIOCGLCKTRMIOS(out(36)) -> int: emulate;
        0x5457 TIOCSLCKTRMIOS(in(36)) -> int: emulate;
        0x5432 TCGETX(out(16)) -> int: emulate;
        0x5433 TCSETX(in(16)) -> int: emulate;
        0x5434 TCSETXF(in(16)) -> int: emulate, waits, restarts;
        0x5435 TCSETXW(in(16)) -> int: emulate, waits, restarts;
        // Terminals: output, breaks, flow.
        0x5409 TCSBRK(int) -> int: emulate, waits, restarts;
        0x540a TCXONC(int) -> int: emulate, restarts;
        0x540b TCFLSH(int) -> int: emulate;
        0x5425 TCSBRKP(int) -> int: emulate, waits, restarts;
        0x5427 TIOCSBRK(int) -> int: emulate;
        0x5428 TIOCCBRK(int) -> int: emulate;
        0x5411 TIOCOUTQ(out(4)) -> int: emulate, asks;
        0x5412 TIOCSTI(in(1)) -> int: emulate;
        0x541b FIONREAD(out(4)) -> int: emulate, asks;
        0x5420 TIOCPKT(in(4)) -> int: emulate;
        0x80045438 TIOCGPKT(out(4)) -> int: emulate;
        // Terminals: sessions, groups, size, discipline.
        0x540c TIOCEXCL(int) -> int: emulate;
        0x540d TIOCNXCL(int) -> int: emulate;
        0x80045440 TIOCGEXCL(out(4)) -> int: emulate;
        0x540e TIOCSCTTY(int) -> int: emulate;
        0x5422 TIOCNOTTY(int) -> int: emulate;
        0x540f TIOCGPGRP(out(4)) -> int: emulate, asks;
        // From a background process it may be stopped.
        0x5410 TIOCSPGRP(in(4)) -> int: emulate, restarts;
        0x5429 TIOCGSID(out(4)) -> int: emulate, asks;
        0x5413 TIOCGWINSZ(out(8)) -> int: emulate, asks;
        0x5414 TIOCSWINSZ(in(8)) -> int: emulate;
        0x541d TIOCCONS(int) -> int: emulate;
        0x5423 TIOCSETD(in(4)) -> int: emulate, restarts;
        0x5424 TIOCGETD(out(4)) -> int: emulate;
        0x80045432 TIOCGDEV(out(4)) -> int: emulate;
        0x5437 TIOCVHANGUP(int) -> int: emulate;
        0x541c TIOCLINUX(unknown) -> int: emulate;
        // Pseudo-terminals.
        0x80045430 TIOCGPTN(out(4)) -> int: emulate;
        0x40045431 TIOCSPTLCK(in(4)) -> int: emulate;
        0x80045439 TIOCGPTLCK(out(4)) -> int: emulate;
        0x5441 TIOCGPTPEER(hex) -> fd: emulate;
        0x40045436 TIOCSIG(int) -> int: emulate;
        // Serial lines.
        0x5415 TIOCMGET(out(4)) -> int: emulate;
        0x5416 TIOCMBIS(in(4)) -> int: emulate;
        0x5417 TIOCMBIC(in(4)) -> int: emulate;
        0x5418 TIOCMSET(in(4)) -> int: emulate;
        0x5419 TIOCGSOFTCAR(out(4)) -> int: emulate;
        0x541a TIOCSSOFTCAR(in(4)) -> int: emulate;
        0x541e TIOCGSERIAL(out(72)) -> int: emulate;
        0x541f TIOCSSERIAL(in(72)) -> int: emulate;
        0x542e TIOCGRS485(out(32)) -> int: emulate;
        0x542f TIOCSRS485(inout(32)) -> int: emulate;
        0x5459 TIOCSERGETLSR(out(4)) -> int: emulate;
        0x545c TIOCMIWAIT(int) -> int: emulate, waits, restarts;
        0x545d TIOCGICOUNT(out(80)) -> int: emulate;
        // Consoles (ioctl_console(2)).
        0x4b33 KDGKBTYPE(out(1)) -> int: emulate;
        0x4b3a KDSETMODE(int) -> int: emulate;
        0x4b3b KDGETMODE(out(4)) -> int: emulate;
        0x4b44 KDGKBMODE(out(4)) -> int: emulate;
        0x4b45 KDSKBMODE(int) -> int: emulate;
        0x4b31 KDGETLED(out(1)) -> int: emulate;
        0x4b32 KDSETLED(int) -> int: emulate;
        0x4b64 KDGKBLED(out(1)) -> int: emulate;
        0x4b65 KDSKBLED(int) -> int: emulate;
        0x5600 VT_OPENQRY(out(4)) -> int: emulate;
        0x5601 VT_GETMODE(out(8)) -> int: emulate;
        0x5602 VT_SETMODE(in(8)) -> int: emulate;
        0x5603 VT_GETSTATE(out(6)) -> int: emulate;
        0x5605 VT_RELDISP(int) -> int: emulate;
        0x5606 VT_ACTIVATE(int) -> int: emulate;
        0x5607 VT_WAITACTIVE(int) -> int: emulate, waits, restarts;
        0x5608 VT_DISALLOCATE(int) -> int: emulate;
        // Any descriptor.
        0x5450 FIONCLEX(int) -> int: emulate, prompt;
        0x5451 FIOCLEX(int) -> int: emulate, prompt;
        0x5421 FIONBIO(in(4)) -> int: emulate, prompt;
        0x5452 FIOASYNC(in(4)) -> int: emulate;
        0x5460 FIOQSIZE(out(8)) -> int: emulate;
        0x8901 FIOSETOWN(in(4)) -> int: emulate;
        0x8903 FIOGETOWN(out(4)) -> int: emulate;
        // Sockets (socket(7), netdevice(7)).
        0x8902 SIOCSPGRP(in(4)) -> int: emulate;
        0x8904 SIOCGPGRP(out(4)) -> int: emulate;
        0x8905 SIOCATMARK(out(4)) -> int: emulate;
        0x8906 SIOCGSTAMP_OLD(out(16)) -> int: emulate;
        0x8907 SIOCGSTAMPNS_OLD(out(16)) -> int: emulate;
        0x80108906 SIOCGSTAMP_NEW(out(16)) -> int: emulate;
        0x80108907 SIOCGSTAMPNS_NEW(out(16)) -> int: emulate;
        0x894b SIOCOUTQNSD(out(4)) -> int: emulate;
        0x890b SIOCADDRT(in(120)) -> int: emulate;
        0x890c SIOCDELRT(in(120)) -> int: emulate;
        0x8910 SIOCGIFNAME(inout(40)) -> int: emulate;
        0x8911 SIOCSIFLINK(in(40)) -> int: emulate;
        // It names a further buffer.
        0x8912 SIOCGIFCONF(unknown) -> int: emulate;
        0x8913 SIOCGIFFLAGS(inout(40)) -> int: emulate;
        0x8914 SIOCSIFFLAGS(in(40)) -> int: emulate;
        0x8915 SIOCGIFADDR(inout(40)) -> int: emulate;
        0x8916 SIOCSIFADDR(in(40)) -> int: emulate;
        0x8917 SIOCGIFDSTADDR(inout(40)) -> int: emulate;
        0x8918 SIOCSIFDSTADDR(in(40)) -> int: emulate;
        0x8919 SIOCGIFBRDADDR(inout(40)) -> int: emulate;
        0x891a SIOCSIFBRDADDR(in(40)) -> int: emulate;
        0x891b SIOCGIFNETMASK(inout(40)) -> int: emulate;
        0x891c SIOCSIFNETMASK(in(40)) -> int: emulate;
        0x891d SIOCGIFMETRIC(inout(40)) -> int: emulate;
        0x891e SIOCSIFMETRIC(in(40)) -> int: emulate;
        0x8921 SIOCGIFMTU(inout(40)) -> int: emulate;
        0x8922 SIOCSIFMTU(in(40)) -> int: emulate;
        0x8923 SIOCSIFNAME(in(40)) -> int: emulate;
        0x8924 SIOCSIFHWADDR(in(40)) -> int: emulate;
        0x8927 SIOCGIFHWADDR(inout(40)) -> int: emulate;
        0x8931 SIOCADDMULTI(in(40)) -> int: emulate;
        0x8932 SIOCDELMULTI(in(40)) -> int: emulate;
        0x8933 SIOCGIFINDEX(inout(40)) -> int: emulate;
        0x8935 SIOCGIFPFLAGS(inout(40)) -> int: emulate;
        0x8934 SIOCSIFPFLAGS(in(40)) -> int: emulate;
        0x8942 SIOCGIFTXQLEN(inout(40)) -> int: emulate;
        0x8943 SIOCSIFTXQLEN(in(40)) -> int: emulate;
        0x8970 SIOCGIFMAP(inout(40)) -> int: emulate;
        0x8971 SIOCSIFMAP(in(40)) -> int: emulate;
        // These name further buffers.
        0x8946 SIOCETHTOOL(unknown) -> int: emulate;
        0x8947 SIOCGMIIPHY(inout(40)) -> int: emulate;
        0x8948 SIOCGMIIREG(inout(40)) -> int: emulate;
        0x8953 SIOCDARP(in(68)) -> int: emulate;
        0x8954 SIOCGARP(inout(68)) -> int: emulate;
        0x8955 SIOCSARP(in(68)) -> int: emulate;
        0x89a0 SIOCBRADDBR(path) -> int: emulate;
        0x89a1 SIOCBRDELBR(path) -> int: emulate;
        0x89a2 SIOCBRADDIF(in(40)) -> int: emulate;
        0x89a3 SIOCBRDELIF(in(40)) -> int: emulate;
        0x894c SIOCGSKNS(int) -> fd: emulate;
        // Network tunnels.
        0x400454ca TUNSETIFF(inout(40)) -> int: emulate;
        0x400454cb TUNSETPERSIST(int) -> int: emulate;
        0x400454cc TUNSETOWNER(int) -> int: emulate;
        0x400454cd TUNSETLINK(int) -> int: emulate;
        0x400454ce TUNSETGROUP(int) -> int: emulate;
        0x800454cf TUNGETFEATURES(out(4)) -> int: emulate;
        0x400454d0 TUNSETOFFLOAD(hex) -> int: emulate;
        0x800454d2 TUNGETIFF(out(40)) -> int: emulate;
        0x800454d3 TUNGETSNDBUF(out(4)) -> int: emulate;
        0x400454d4 TUNSETSNDBUF(in(4)) -> int: emulate;
        0x800454d7 TUNGETVNETHDRSZ(out(4)) -> int: emulate;
        0x400454d8 TUNSETVNETHDRSZ(in(4)) -> int: emulate;
        0x400454d9 TUNSETQUEUE(in(40)) -> int: emulate;
        // Files and file systems.
        1 FIBMAP(inout(4)) -> int: emulate;
        2 FIGETBSZ(out(4)) -> int: emulate;
        0x40049409 FICLONE(fd) -> int: emulate, restarts;
        0x4020940d FICLONERANGE(in(32)) -> int: emulate, restarts;
        // As long as it says itself.
        0xc0189436 FIDEDUPERANGE(unknown) -> int: emulate, restarts;
        0xc020660b FS_IOC_FIEMAP(unknown) -> int: emulate, restarts;
        0x80086601 FS_IOC_GETFLAGS(out(4)) -> int: emulate, asks;
        0x40086602 FS_IOC_SETFLAGS(in(4)) -> int: emulate;
        0x80087601 FS_IOC_GETVERSION(out(4)) -> int: emulate, asks;
        0x40087602 FS_IOC_SETVERSION(in(4)) -> int: emulate;
        0x801c581f FS_IOC_FSGETXATTR(out(28)) -> int: emulate;
        0x401c5820 FS_IOC_FSSETXATTR(in(28)) -> int: emulate;
        0x81009431 FS_IOC_GETFSLABEL(out(256)) -> int: emulate;
        0x41009432 FS_IOC_SETFSLABEL(in(256)) -> int: emulate;
        0x80111500 FS_IOC_GETFSUUID(out(17)) -> int: emulate;
        0x800c6613 FS_IOC_SET_ENCRYPTION_POLICY(in(12)) -> int: emulate;
        0xc0045877 FIFREEZE(int) -> int: emulate, restarts;
        0xc0045878 FITHAW(int) -> int: emulate, restarts;
        0xc0185879 FITRIM(inout(24)) -> int: emulate, restarts;
        0x82307201 VFAT_IOCTL_READDIR_BOTH(out(560)) -> int: emulate;
        0x80047210 FAT_IOCTL_GET_ATTRIBUTES(out(4)) -> int: emulate;
        0x40047211 FAT_IOCTL_SET_ATTRIBUTES(in(4)) -> int: emulate;
        // Name spaces (ioctl_nsfs(2)).
        0xb701 NS_GET_USERNS(int) -> fd: emulate;
        0xb702 NS_GET_PARENT(int) -> fd: emulate;
        0xb703 NS_GET_NSTYPE(int) -> int: emulate;
        0xb704 NS_GET_OWNER_UID(out(4)) -> int: emulate;
        // Block devices.
        0x125d BLKROSET(in(4)) -> int: emulate;
        0x125e BLKROGET(out(4)) -> int: emulate;
        0x125f BLKRRPART(int) -> int: emulate;
        0x1260 BLKGETSIZE(out(8)) -> int: emulate;
        0x1261 BLKFLSBUF(int) -> int: emulate;
        0x1262 BLKRASET(int) -> int: emulate;
        0x1263 BLKRAGET(out(8)) -> int: emulate;
        0x1264 BLKFRASET(int) -> int: emulate;
        0x1265 BLKFRAGET(out(8)) -> int: emulate;
        0x1267 BLKSECTGET(out(2)) -> int: emulate;
        0x1268 BLKSSZGET(out(4)) -> int: emulate;
        0x80081270 BLKBSZGET(out(4)) -> int: emulate;
        0x40081271 BLKBSZSET(in(4)) -> int: emulate;
        0x80081272 BLKGETSIZE64(out(8)) -> int: emulate;
        0x1277 BLKDISCARD(in(16)) -> int: emulate;
        0x1278 BLKIOMIN(out(4)) -> int: emulate;
        0x1279 BLKIOOPT(out(4)) -> int: emulate;
        0x127a BLKALIGNOFF(out(4)) -> int: emulate;
        0x127b BLKPBSZGET(out(4)) -> int: emulate;
        0x127c BLKDISCARDZEROES(out(4)) -> int: emulate;
        0x127d BLKSECDISCARD(in(16)) -> int: emulate;
        0x127e BLKROTATIONAL(out(2)) -> int: emulate;
        0x127f BLKZEROOUT(in(16)) -> int: emulate;
        0x80081280 BLKGETDISKSEQ(out(8)) -> int: emulate;
        0x301 HDIO_GETGEO(out(16)) -> int: emulate;
        0x30d HDIO_GET_IDENTITY(out(512)) -> int: emulate;
        0x5331 CDROM_GET_CAPABILITY(int) -> int: emulate;
        0x5326 CDROM_DRIVE_STATUS(int) -> int: emulate;
        // It names further buffers.
        0x2285 SG_IO(unknown) -> int: emulate, waits, restarts;
        0x2282 SG_GET_VERSION_NUM(out(4)) -> int: emulate;
        0x5382 SCSI_IOCTL_GET_IDLUN(out(8)) -> int: emulate;
        0x5386 SCSI_IOCTL_GET_BUS_NUMBER(out(4)) -> int: emulate;
        // Loop devices (loop(4)).
        0x4c00 LOOP_SET_FD(fd) -> int: emulate;
        0x4c01 LOOP_CLR_FD(int) -> int: emulate;
        0x4c02 LOOP_SET_STATUS(in(168)) -> int: emulate;
        0x4c03 LOOP_GET_STATUS(out(168)) -> int: emulate;
        0x4c04 LOOP_SET_STATUS64(in(232)) -> int: emulate;
        0x4c05 LOOP_GET_STATUS64(out(232)) -> int: emulate;
        0x4c06 LOOP_CHANGE_FD(fd) -> int: emulate;
        0x4c07 LOOP_SET_CAPACITY(int) -> int: emulate;
        0x4c08 LOOP_SET_DIRECT_IO(int) -> int: emulate;
        0x4c09 LOOP_SET_BLOCK_SIZE(int) -> int: emulate;
        0x4c0a LOOP_CONFIGURE(in(304)) -> int: emulate;
        0x4c80 LOOP_CTL_ADD(int) -> int: emulate;
        0x4c81 LOOP_CTL_REMOVE(int) -> int: emulate;
        0x4c82 LOOP_CTL_GET_FREE(int) -> int: emulate;
        // Clocks (rtc(4)).
        0x7001 RTC_AIE_ON(int) -> int: emulate;
        0x7002 RTC_AIE_OFF(int) -> int: emulate;
        0x7003 RTC_UIE_ON(int) -> int: emulate;
        0x7004 RTC_UIE_OFF(int) -> int: emulate;
        0x7005 RTC_PIE_ON(int) -> int: emulate;
        0x7006 RTC_PIE_OFF(int) -> int: emulate;
        0x80247008 RTC_ALM_READ(out(36)) -> int: emulate;
        0x40247007 RTC_ALM_SET(in(36)) -> int: emulate;
        0x80247009 RTC_RD_TIME(out(36)) -> int: emulate;
        0x4024700a RTC_SET_TIME(in(36)) -> int: emulate;
        0x8008700b RTC_IRQP_READ(out(8)) -> int: emulate;
        0x4008700c RTC_IRQP_SET(int) -> int: emulate;
        0x8008700d RTC_EPOCH_READ(out(8)) -> int: emulate;
        0x4028700f RTC_WKALM_SET(in(40)) -> int: emulate;
        0x80287010 RTC_WKALM_RD(out(40)) -> int: emulate;
        // Watchdogs, random numbers, input.
        0x80285700 WDIOC_GETSUPPORT(out(40)) -> int: emulate;
        0x80045701 WDIOC_GETSTATUS(out(4)) -> int: emulate;
        0x80045705 WDIOC_KEEPALIVE(int) -> int: emulate;
        0xc0045706 WDIOC_SETTIMEOUT(inout(4)) -> int: emulate;
        0x80045707 WDIOC_GETTIMEOUT(out(4)) -> int: emulate;
        0x80045200 RNDGETENTCNT(out(4)) -> int: emulate;
        0x40045201 RNDADDTOENTCNT(in(4)) -> int: emulate;
        0x40085203 RNDADDENTROPY(unknown) -> int: emulate;
        0x5204 RNDZAPENTCNT(int) -> int: emulate;
        0x5206 RNDCLEARPOOL(int) -> int: emulate;
        0x5207 RNDRESEEDCRNG(int) -> int: emulate;
        0x80044501 EVIOCGVERSION(out(4)) -> int: emulate;
        0x80084502 EVIOCGID(out(8)) -> int: emulate;
        0x40044590 EVIOCGRAB(int) -> int: emulate;
        // Timers, events, processes.
        0x40085400 TFD_IOC_SET_TICKS(in(8)) -> int: emulate;
        0x40088a01 EPIOCSPARAMS(in(8)) -> int: emulate;
        0x80088a02 EPIOCGPARAMS(out(8)) -> int: emulate;
        0xff01 PIDFD_GET_CGROUP_NAMESPACE(int) -> fd: emulate;
        0xff02 PIDFD_GET_IPC_NAMESPACE(int) -> fd: emulate;
        0xff03 PIDFD_GET_MNT_NAMESPACE(int) -> fd: emulate;
        0xff04 PIDFD_GET_NET_NAMESPACE(int) -> fd: emulate;
        0xff05 PIDFD_GET_PID_NAMESPACE(int) -> fd: emulate;
        // What only makes sense on descriptors that are refused, or that would change memory by itself.
        0x2400 PERF_EVENT_IOC_ENABLE(int) -> int: refuse(ENOTTY);
        0x2401 PERF_EVENT_IOC_DISABLE(int) -> int: refuse(ENOTTY);
        0x2402 PERF_EVENT_IOC_REFRESH(int) -> int: refuse(ENOTTY);
        0x2403 PERF_EVENT_IOC_RESET(int) -> int: refuse(ENOTTY);
        0x40082404 PERF_EVENT_IOC_PERIOD(in(8)) -> int: refuse(ENOTTY);
        0x2405 PERF_EVENT_IOC_SET_OUTPUT(fd) -> int: refuse(ENOTTY);
        0x40082406 PERF_EVENT_IOC_SET_FILTER(path) -> int: refuse(ENOTTY);
        0x80082407 PERF_EVENT_IOC_ID(out(8)) -> int: refuse(ENOTTY);
        0x40042408 PERF_EVENT_IOC_SET_BPF(fd) -> int: refuse(ENOTTY);
        0x40042409 PERF_EVENT_IOC_PAUSE_OUTPUT(int) -> int: refuse(ENOTTY);
        0xc008240a PERF_EVENT_IOC_QUERY_BPF(addr) -> int: refuse(ENOTTY);
        0x4008240b PERF_EVENT_IOC_MODIFY_ATTRIBUTES(addr) -> int: refuse(ENOTTY);
        0xc018aa3f UFFDIO_API(addr) -> int: refuse(ENOTTY);
        0xaa00 USERFAULTFD_IOC_NEW(hex) -> fd: refuse(ENOTTY);
        // A virtual machine runs on the program's memory by itself.
        0xae00 KVM_GET_API_VERSION(int) -> int: refuse(ENOTTY);
        0xae01 KVM_CREATE_VM(hex) -> fd: refuse(ENOTTY);
    }
}

static BY_NUMBER: [u16; ENTRIES.len()] = sorted(ENTRIES);

/// The request with this number (the kernel looks at its lower 32 bits only).
pub fn lookup(request: u64) -> Option<&'static SubCall> {
    find(ENTRIES, &BY_NUMBER, request as u32 as u64)
}

/// What the number of a request says of itself, where its author kept to the convention (asm-generic/ioctl.h).
///
/// It is good for printing only: numbers older than the convention, and many since, say something else than they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// The kernel reads the structure.
    pub reads: bool,
    /// The kernel writes the structure.
    pub writes: bool,
    /// The letter of the driver.
    pub group: u8,
    /// The request within the driver.
    pub nr: u8,
    /// Bytes of the structure.
    pub size: u16,
}

/// Takes the number of a request apart.
pub fn decode(request: u64) -> Encoded {
    let request = request as u32;
    Encoded {
        reads: request & 0x4000_0000 != 0,
        writes: request & 0x8000_0000 != 0,
        group: (request >> 8) as u8,
        nr: request as u8,
        size: (request >> 16 & 0x3fff) as u16,
    }
}
