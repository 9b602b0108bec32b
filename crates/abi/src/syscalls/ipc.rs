//! Calls between threads and processes: futexes, System V and POSIX queues, shared memory, keys.

commands! {
    /// What `buf` is for each command of shmctl(2).
    const SHMCTL(shmid, cmd, buf) {
        0 IPC_RMID(int) -> int: emulate, prompt;
        1 IPC_SET(in(112)) -> int: emulate, prompt;
        2 IPC_STAT(out(112)) -> int: emulate, prompt;
        3 IPC_INFO(out(72)) -> int: emulate, prompt;
        11 SHM_LOCK(int) -> int: emulate;
        12 SHM_UNLOCK(int) -> int: emulate;
        13 SHM_STAT(out(112)) -> int: emulate, prompt;
        14 SHM_INFO(out(48)) -> int: emulate, prompt;
        15 SHM_STAT_ANY(out(112)) -> int: emulate, prompt;
    }
}

commands! {
    /// What `arg` is for each command of semctl(2).
    const SEMCTL(semid, semnum, cmd, arg) {
        0 IPC_RMID(int) -> int: emulate, prompt;
        1 IPC_SET(in(104)) -> int: emulate, prompt;
        2 IPC_STAT(out(104)) -> int: emulate, prompt;
        3 IPC_INFO(out(40)) -> int: emulate, prompt;
        11 GETPID(int) -> int: emulate, prompt;
        12 GETVAL(int) -> int: emulate, prompt;
        // As many as the set has, which no argument says.
        13 GETALL(unknown) -> int: emulate, prompt;
        14 GETNCNT(int) -> int: emulate, prompt;
        15 GETZCNT(int) -> int: emulate, prompt;
        16 SETVAL(int) -> int: emulate, prompt;
        // The kernel reads as many as the set has; it writes none.
        17 SETALL(addr) -> int: emulate, prompt;
        18 SEM_STAT(out(104)) -> int: emulate, prompt;
        19 SEM_INFO(out(40)) -> int: emulate, prompt;
        20 SEM_STAT_ANY(out(104)) -> int: emulate, prompt;
    }
}

commands! {
    /// What `buf` is for each command of msgctl(2).
    const MSGCTL(msqid, cmd, buf) {
        0 IPC_RMID(int) -> int: emulate, prompt;
        1 IPC_SET(in(120)) -> int: emulate, prompt;
        2 IPC_STAT(out(120)) -> int: emulate, prompt;
        3 IPC_INFO(out(32)) -> int: emulate, prompt;
        11 MSG_STAT(out(120)) -> int: emulate, prompt;
        12 MSG_INFO(out(32)) -> int: emulate, prompt;
        13 MSG_STAT_ANY(out(120)) -> int: emulate, prompt;
    }
}

commands! {
    /// What `arg3` is for each operation of keyctl(2).
    const KEYCTL(operation, arg2, arg3, arg4, arg5) {
        0 KEYCTL_GET_KEYRING_ID(int) -> int: emulate;
        1 KEYCTL_JOIN_SESSION_KEYRING(int) -> int: emulate;
        2 KEYCTL_UPDATE(in(arg4)) -> int: emulate;
        3 KEYCTL_REVOKE(int) -> int: emulate;
        4 KEYCTL_CHOWN(int) -> int: emulate;
        5 KEYCTL_SETPERM(hex) -> int: emulate;
        6 KEYCTL_DESCRIBE(out(arg4) wrote(result)) -> int: emulate;
        7 KEYCTL_CLEAR(int) -> int: emulate;
        8 KEYCTL_LINK(int) -> int: emulate;
        9 KEYCTL_UNLINK(int) -> int: emulate;
        10 KEYCTL_SEARCH(path) -> int: emulate;
        11 KEYCTL_READ(out(arg4) wrote(result)) -> int: emulate;
        12 KEYCTL_INSTANTIATE(in(arg4)) -> int: emulate;
        13 KEYCTL_NEGATE(int) -> int: emulate;
        14 KEYCTL_SET_REQKEY_KEYRING(int) -> int: emulate;
        15 KEYCTL_SET_TIMEOUT(int) -> int: emulate;
        16 KEYCTL_ASSUME_AUTHORITY(int) -> int: emulate;
        17 KEYCTL_GET_SECURITY(out(arg4) wrote(result)) -> int: emulate;
        18 KEYCTL_SESSION_TO_PARENT(int) -> int: emulate;
        19 KEYCTL_REJECT(int) -> int: emulate;
        20 KEYCTL_INSTANTIATE_IOV(addr) -> int: emulate;
        21 KEYCTL_INVALIDATE(int) -> int: emulate;
        22 KEYCTL_GET_PERSISTENT(int) -> int: emulate;
        30 KEYCTL_MOVE(int) -> int: emulate;
    }
}

calls! {
    29 SHMGET shmget(key: hex, size: size, shmflg: hex) -> int: emulate, prompt, does(segments);
    30 SHMAT shmat(shmid: int, shmaddr: addr, shmflg: hex) -> ptr: special, does(attaches);
    31 SHMCTL shmctl(shmid: int, cmd: int, buf: command(cmd, SHMCTL)) -> int: emulate, does(segments);
    64 SEMGET semget(key: hex, nsems: int, semflg: hex) -> int: emulate, prompt;
    65 SEMOP semop(semid: int, sops: in(nsops * 6), nsops: uint) -> int: emulate, waits, eintr;
    66 SEMCTL semctl(semid: int, semnum: int, cmd: int, arg: command(cmd, SEMCTL)) -> int: emulate;
    67 SHMDT shmdt(shmaddr: addr) -> int: special, does(detaches);
    68 MSGGET msgget(key: hex, msgflg: hex) -> int: emulate, prompt;
    69 MSGSND msgsnd(msqid: int, msgp: in(msgsz + 8), msgsz: size, msgflg: hex) -> int: emulate, waits, eintr, nowait(msgflg 0o4000);
    70 MSGRCV msgrcv(
        msqid: int, msgp: out(msgsz + 8) wrote(result + 8), msgsz: size, msgtyp: long, msgflg: hex,
    ) -> int: emulate, waits, eintr, nowait(msgflg 0o4000);
    71 MSGCTL msgctl(msqid: int, cmd: int, buf: command(cmd, MSGCTL)) -> int: emulate;
    202 FUTEX futex(
        uaddr: addr, op: flags(FUTEX), val: uint, timeout: in(16), uaddr2: addr, val3: hex,
    ) -> int: special, waits, restarts, local, does(futex);
    220 SEMTIMEDOP semtimedop(semid: int, sops: in(nsops * 6), nsops: uint, timeout: in(16)) -> int: emulate, waits, eintr, timeout(timespec timeout);
    240 MQ_OPEN mq_open(name: path, oflag: flags(OPEN), mode: mode, attr: in(64)) -> fd: emulate, does(opens object);
    241 MQ_UNLINK mq_unlink(name: path) -> int: emulate;
    242 MQ_TIMEDSEND mq_timedsend(
        mqdes: fd, msg_ptr: in(msg_len), msg_len: size, msg_prio: uint, abs_timeout: in(16),
    ) -> int: emulate, waits(mqdes), restarts, timeout(until abs_timeout), does(puts mqdes);
    243 MQ_TIMEDRECEIVE mq_timedreceive(
        mqdes: fd, msg_ptr: out(msg_len) wrote(result), msg_len: size, msg_prio: out(4), abs_timeout: in(16),
    ) -> int: emulate, waits(mqdes), restarts, timeout(until abs_timeout), does(takes mqdes);
    244 MQ_NOTIFY mq_notify(mqdes: fd, sevp: in(64)) -> int: emulate, prompt;
    245 MQ_GETSETATTR mq_getsetattr(mqdes: fd, newattr: in(64), oldattr: out(64)) -> int: emulate, prompt;
    248 ADD_KEY add_key(type: path, description: path, payload: in(plen), plen: size, keyring: int) -> int: emulate;
    // A key that has to be made asks a program of the system.
    249 REQUEST_KEY request_key(
        type: path, description: path, callout_info: path, dest_keyring: int,
    ) -> int: emulate, waits, eintr;
    250 KEYCTL keyctl(
        operation: int, arg2: hex, arg3: command(operation, KEYCTL), arg4: hex, arg5: hex,
    ) -> int: emulate;
    // The futex calls of later kernels: programs fall back to futex.
    449 FUTEX_WAITV futex_waitv(
        waiters: in(nr_futexes * 24), nr_futexes: uint, flags: hex, timeout: in(16), clockid: one_of(CLOCK),
    ) -> int: refuse(ENOSYS);
    454 FUTEX_WAKE futex_wake(uaddr: addr, mask: hex, nr: int, flags: hex) -> int: refuse(ENOSYS);
    455 FUTEX_WAIT futex_wait(
        uaddr: addr, val: uint, mask: hex, flags: hex, timeout: in(16), clockid: one_of(CLOCK),
    ) -> int: refuse(ENOSYS);
    456 FUTEX_REQUEUE futex_requeue(waiters: in(48), flags: hex, nr_wake: int, nr_requeue: int) -> int: refuse(ENOSYS);
}
