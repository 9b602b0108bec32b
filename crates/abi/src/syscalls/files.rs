//! Calls that work on names of files: opening, attributes, directories, links, mounts, watches.

calls! {
    // Opening a FIFO or a lease-held file waits.
    2 OPEN open(pathname: path, flags: flags(OPEN), mode: mode) -> fd: emulate, restarts, does(opens pathname by flags);
    4 STAT stat(pathname: path, statbuf: out(144)) -> int: emulate, asks;
    5 FSTAT fstat(fd: fd, statbuf: out(144)) -> int: emulate, asks;
    6 LSTAT lstat(pathname: path, statbuf: out(144)) -> int: emulate, asks;
    21 ACCESS access(pathname: path, mode: flags(ACCESS)) -> int: emulate, asks;
    76 TRUNCATE truncate(path: path, length: long) -> int: emulate, does(truncates named path);
    78 GETDENTS getdents(fd: fd, dirp: out(count) wrote(result), count: uint) -> int: emulate;
    79 GETCWD getcwd(buf: out(size) wrote(result), size: size) -> int: emulate, prompt, local;
    80 CHDIR chdir(path: path) -> int: emulate;
    81 FCHDIR fchdir(fd: fd) -> int: emulate;
    82 RENAME rename(oldpath: path, newpath: path) -> int: emulate;
    83 MKDIR mkdir(pathname: path, mode: mode) -> int: emulate;
    84 RMDIR rmdir(pathname: path) -> int: emulate;
    85 CREAT creat(pathname: path, mode: mode) -> fd: emulate, restarts, does(creates pathname);
    86 LINK link(oldpath: path, newpath: path) -> int: emulate;
    87 UNLINK unlink(pathname: path) -> int: emulate;
    88 SYMLINK symlink(target: path, linkpath: path) -> int: emulate;
    89 READLINK readlink(pathname: path, buf: out(bufsiz) wrote(result), bufsiz: uint) -> int: emulate, asks, does(reads link pathname);
    90 CHMOD chmod(pathname: path, mode: mode) -> int: emulate;
    91 FCHMOD fchmod(fd: fd, mode: mode) -> int: emulate;
    92 CHOWN chown(pathname: path, owner: int, group: int) -> int: emulate;
    93 FCHOWN fchown(fd: fd, owner: int, group: int) -> int: emulate;
    94 LCHOWN lchown(pathname: path, owner: int, group: int) -> int: emulate;
    95 UMASK umask(mask: mode) -> int: emulate, prompt;
    132 UTIME utime(filename: path, times: in(16)) -> int: emulate;
    133 MKNOD mknod(pathname: path, mode: mode, dev: hex) -> int: emulate;
    134 USELIB uselib(library: path) -> int: refuse(ENOSYS);
    136 USTAT ustat(dev: hex, ubuf: out(32)) -> int: emulate, asks;
    137 STATFS statfs(path: path, buf: out(120)) -> int: emulate, asks;
    138 FSTATFS fstatfs(fd: fd, buf: out(120)) -> int: emulate, asks;
    // Its buffer has no length; most kernels are built without it.
    139 SYSFS sysfs(option: int, arg1: hex, arg2: hex) -> int: refuse(ENOSYS);
    155 PIVOT_ROOT pivot_root(new_root: path, put_old: path) -> int: emulate, hides;
    161 CHROOT chroot(path: path) -> int: emulate, hides;
    162 SYNC sync() -> int: emulate;
    165 MOUNT mount(source: path, target: path, filesystemtype: path, mountflags: flags(MOUNT), data: addr) -> int: emulate, hides;
    166 UMOUNT2 umount2(target: path, flags: flags(UMOUNT)) -> int: emulate, hides;
    188 SETXATTR setxattr(path: path, name: path, value: in(size), size: size, flags: flags(XATTR)) -> int: emulate;
    189 LSETXATTR lsetxattr(path: path, name: path, value: in(size), size: size, flags: flags(XATTR)) -> int: emulate;
    190 FSETXATTR fsetxattr(fd: fd, name: path, value: in(size), size: size, flags: flags(XATTR)) -> int: emulate;
    191 GETXATTR getxattr(path: path, name: path, value: out(size) wrote(result), size: size) -> int: emulate, asks;
    192 LGETXATTR lgetxattr(path: path, name: path, value: out(size) wrote(result), size: size) -> int: emulate, asks;
    193 FGETXATTR fgetxattr(fd: fd, name: path, value: out(size) wrote(result), size: size) -> int: emulate, asks;
    194 LISTXATTR listxattr(path: path, list: out(size) wrote(result), size: size) -> int: emulate, asks;
    195 LLISTXATTR llistxattr(path: path, list: out(size) wrote(result), size: size) -> int: emulate, asks;
    196 FLISTXATTR flistxattr(fd: fd, list: out(size) wrote(result), size: size) -> int: emulate, asks;
    197 REMOVEXATTR removexattr(path: path, name: path) -> int: emulate;
    198 LREMOVEXATTR lremovexattr(path: path, name: path) -> int: emulate;
    199 FREMOVEXATTR fremovexattr(fd: fd, name: path) -> int: emulate;
    212 LOOKUP_DCOOKIE lookup_dcookie(cookie: hex, buffer: out(len) wrote(result), len: size) -> int: refuse(ENOSYS);
    217 GETDENTS64 getdents64(fd: fd, dirp: out(count) wrote(result), count: uint) -> int: emulate;
    235 UTIMES utimes(filename: path, times: in(32)) -> int: emulate;
    253 INOTIFY_INIT inotify_init() -> fd: emulate, prompt, does(opens watch);
    254 INOTIFY_ADD_WATCH inotify_add_watch(fd: fd, pathname: path, mask: flags(INOTIFY)) -> int: emulate;
    255 INOTIFY_RM_WATCH inotify_rm_watch(fd: fd, wd: int) -> int: emulate;
    257 OPENAT openat(dirfd: fd, pathname: path, flags: flags(OPEN), mode: mode) -> fd: emulate, restarts,
        does(opens pathname below dirfd by flags);
    258 MKDIRAT mkdirat(dirfd: fd, pathname: path, mode: mode) -> int: emulate;
    259 MKNODAT mknodat(dirfd: fd, pathname: path, mode: mode, dev: hex) -> int: emulate;
    260 FCHOWNAT fchownat(dirfd: fd, pathname: path, owner: int, group: int, flags: flags(AT)) -> int: emulate;
    261 FUTIMESAT futimesat(dirfd: fd, pathname: path, times: in(32)) -> int: emulate;
    262 NEWFSTATAT newfstatat(dirfd: fd, pathname: path, statbuf: out(144), flags: flags(AT)) -> int: emulate, asks;
    263 UNLINKAT unlinkat(dirfd: fd, pathname: path, flags: flags(UNLINKAT)) -> int: emulate;
    264 RENAMEAT renameat(olddirfd: fd, oldpath: path, newdirfd: fd, newpath: path) -> int: emulate;
    265 LINKAT linkat(olddirfd: fd, oldpath: path, newdirfd: fd, newpath: path, flags: flags(AT)) -> int: emulate;
    266 SYMLINKAT symlinkat(target: path, newdirfd: fd, linkpath: path) -> int: emulate;
    267 READLINKAT readlinkat(dirfd: fd, pathname: path, buf: out(bufsiz) wrote(result), bufsiz: uint) -> int: emulate, asks, does(reads link pathname);
    268 FCHMODAT fchmodat(dirfd: fd, pathname: path, mode: mode) -> int: emulate;
    269 FACCESSAT faccessat(dirfd: fd, pathname: path, mode: flags(ACCESS)) -> int: emulate, asks;
    280 UTIMENSAT utimensat(dirfd: fd, pathname: path, times: in(32), flags: flags(AT)) -> int: emulate;
    294 INOTIFY_INIT1 inotify_init1(flags: flags(DESCRIPTOR)) -> fd: emulate, prompt, does(opens watch);
    300 FANOTIFY_INIT fanotify_init(flags: hex, event_f_flags: flags(OPEN)) -> fd: emulate, prompt, does(opens object);
    301 FANOTIFY_MARK fanotify_mark(fanotify_fd: fd, flags: hex, mask: hex, dirfd: fd, pathname: path) -> int: emulate;
    // A handle that is too small is told the length that is needed, and the call fails.
    303 NAME_TO_HANDLE_AT name_to_handle_at(
        dirfd: fd, pathname: path, handle: inout([handle] + 8) always, mount_id: out(8) always, flags: flags(AT),
    ) -> int: emulate, asks;
    304 OPEN_BY_HANDLE_AT open_by_handle_at(mount_fd: fd, handle: in([handle] + 8), flags: flags(OPEN)) -> fd: emulate, restarts,
        does(opens by flags);
    316 RENAMEAT2 renameat2(
        olddirfd: fd, oldpath: path, newdirfd: fd, newpath: path, flags: flags(RENAME),
    ) -> int: emulate;
    332 STATX statx(dirfd: fd, pathname: path, flags: flags(AT), mask: flags(STATX), statxbuf: out(256)) -> int: emulate, asks;
    428 OPEN_TREE open_tree(dirfd: fd, pathname: path, flags: flags(OPEN_TREE)) -> fd: emulate, does(opens object);
    429 MOVE_MOUNT move_mount(
        from_dirfd: fd, from_pathname: path, to_dirfd: fd, to_pathname: path, flags: hex,
    ) -> int: emulate, hides;
    430 FSOPEN fsopen(fsname: path, flags: hex) -> fd: emulate, does(opens object);
    431 FSCONFIG fsconfig(fd: fd, cmd: int, key: path, value: addr, aux: int) -> int: emulate;
    432 FSMOUNT fsmount(fsfd: fd, flags: hex, attr_flags: hex) -> fd: emulate, does(opens object);
    433 FSPICK fspick(dirfd: fd, pathname: path, flags: hex) -> fd: emulate, does(opens object);
    437 OPENAT2 openat2(dirfd: fd, pathname: path, how: in(size), size: size) -> fd: emulate, restarts,
        does(opens pathname below dirfd by [how]);
    439 FACCESSAT2 faccessat2(dirfd: fd, pathname: path, mode: flags(ACCESS), flags: flags(AT)) -> int: emulate, asks;
    442 MOUNT_SETATTR mount_setattr(dirfd: fd, pathname: path, flags: flags(AT), attr: in(size), size: size) -> int: emulate;
    452 FCHMODAT2 fchmodat2(dirfd: fd, pathname: path, mode: mode, flags: flags(AT)) -> int: emulate;
    457 STATMOUNT statmount(req: in([req]), buf: out(bufsize), bufsize: size, flags: hex) -> int: emulate, asks;
    458 LISTMOUNT listmount(
        req: in([req]), mnt_ids: out(nr_mnt_ids * 8) wrote(result * 8), nr_mnt_ids: size, flags: hex,
    ) -> int: emulate, asks;
    463 SETXATTRAT setxattrat(
        dirfd: fd, pathname: path, at_flags: flags(AT), name: path, args: in(size), size: size,
    ) -> int: emulate;
    // The buffer is named inside of `args`.
    464 GETXATTRAT getxattrat(
        dirfd: fd, pathname: path, at_flags: flags(AT), name: path, args: unknown, size: size,
    ) -> int: emulate;
    465 LISTXATTRAT listxattrat(
        dirfd: fd, pathname: path, at_flags: flags(AT), list: out(size) wrote(result), size: size,
    ) -> int: emulate, asks;
    466 REMOVEXATTRAT removexattrat(dirfd: fd, pathname: path, at_flags: flags(AT), name: path) -> int: emulate;
    467 OPEN_TREE_ATTR open_tree_attr(
        dirfd: fd, pathname: path, flags: flags(OPEN_TREE), attr: in(size), size: size,
    ) -> fd: emulate, does(opens object);
    468 FILE_GETATTR file_getattr(dirfd: fd, pathname: path, attr: out(size), size: size, at_flags: flags(AT)) -> int: emulate, asks;
    469 FILE_SETATTR file_setattr(dirfd: fd, pathname: path, attr: in(size), size: size, at_flags: flags(AT)) -> int: emulate;
    470 LISTNS listns(req: in([req]), ns_ids: out(nr_ns_ids * 8) wrote(result * 8), nr_ns_ids: size, flags: hex) -> int: emulate;
}
