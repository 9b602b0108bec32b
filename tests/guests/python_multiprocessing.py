"""multiprocessing: a pool, queues and pipes, shared memory with a lock, a manager, an event, a child that fails and one that is killed."""

import multiprocessing
import os
import signal
import sys
from multiprocessing import shared_memory


def square(n):
    if n == 13:
        raise ValueError("thirteen")
    return n * n


def produces(queue, me):
    for i in range(20):
        queue.put((me, i))


def adds(name, lock, rounds):
    memory = shared_memory.SharedMemory(name)
    for _ in range(rounds):
        with lock:
            value = int.from_bytes(memory.buf[:8], "little")
            memory.buf[:8] = (value + 1).to_bytes(8, "little")
    memory.close()


def answers(end):
    while (question := end.recv()) is not None:
        end.send(question * 2)


def waits(event, barrier):
    event.wait()
    barrier.wait()


def fails():
    sys.stderr = open(os.devnull, "w")
    raise RuntimeError("on purpose")


def main():
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(3) as pool:
        assert pool.map(square, range(12), chunksize=2) == [n * n for n in range(12)]
        assert sorted(pool.imap_unordered(square, range(5))) == [0, 1, 4, 9, 16]
        try:
            pool.apply_async(square, (13,)).get()
            raise AssertionError("no exception")
        except ValueError as e:
            assert str(e) == "thirteen"
    print("pool: done")
    queue = multiprocessing.Queue()
    children = [multiprocessing.Process(target=produces, args=(queue, i)) for i in range(3)]
    for c in children:
        c.start()
    got = [queue.get() for _ in range(60)]
    for c in children:
        c.join()
    assert sorted(got) == [(me, i) for me in range(3) for i in range(20)]
    print("order", sum(k * me for k, (me, _) in enumerate(got)))

    memory, lock = shared_memory.SharedMemory(create=True, size=100), multiprocessing.Lock()
    memory.buf[:8] = bytes(8)
    children = [multiprocessing.Process(target=adds, args=(memory.name, lock, 50)) for _ in range(3)]
    for c in children:
        c.start()
    for c in children:
        c.join()
    assert int.from_bytes(memory.buf[:8], "little") == 150
    memory.close()
    memory.unlink()

    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.Process(target=answers, args=(theirs,))
    child.start()
    for question in (1, "ab", [3], b"x" * 100000):
        ours.send(question)
        assert ours.recv() == question * 2
    ours.send(None)
    child.join()
    event, barrier = multiprocessing.Event(), multiprocessing.Barrier(3)
    children = [multiprocessing.Process(target=waits, args=(event, barrier)) for _ in range(2)]
    for c in children:
        c.start()
    event.set()
    barrier.wait()
    for c in children:
        c.join()
        assert c.exitcode == 0
    child = multiprocessing.Process(target=fails)
    child.start()
    child.join()
    assert child.exitcode == 1
    child = multiprocessing.Process(target=signal.pause)
    child.start()
    child.kill()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    print("process", os.getpid())


main()
