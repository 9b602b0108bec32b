"""asyncio: tasks, queues, time limits, cancellation, subprocesses, streams over a unix socket, work in threads, signals."""
# run: 5 40

import asyncio
import os
import signal
import sys
import tempfile

TASKS, ROUNDS = (int(a) for a in (sys.argv[1:] or (5, 40)))


async def worker(me, jobs, order):
    while True:
        job = await jobs.get()
        if job % 7 == 0:
            await asyncio.sleep(0.0001)
        order.append((me, job))
        jobs.task_done()


async def queues():
    jobs, order = asyncio.Queue(4), []
    workers = [asyncio.create_task(worker(i, jobs, order)) for i in range(TASKS)]
    for i in range(ROUNDS):
        await jobs.put(i)
    await jobs.join()
    for w in workers:
        w.cancel()
    ended = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(e, asyncio.CancelledError) for e in ended)
    assert sorted(job for _, job in order) == list(range(ROUNDS))
    print("order", sum(me * job for me, job in order))


async def limits():
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 0.001)
        raise AssertionError("no limit")
    except asyncio.TimeoutError:
        pass
    fast, slow = asyncio.create_task(asyncio.sleep(0, 7)), asyncio.create_task(asyncio.sleep(1000))
    done, waiting = await asyncio.wait([fast, slow], return_when=asyncio.FIRST_COMPLETED)
    assert done == {fast} and waiting == {slow} and fast.result() == 7
    slow.cancel()


async def programs():
    cat = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    out, _ = await cat.communicate(b"x" * 200000)
    assert len(out) == 200000 and cat.returncode == 0
    shells = [await asyncio.create_subprocess_shell(f"exit {i}") for i in range(4)]
    assert [await s.wait() for s in shells] == [0, 1, 2, 3]
    sleeper = await asyncio.create_subprocess_exec("sleep", "1000000")
    sleeper.terminate()
    assert await sleeper.wait() == -signal.SIGTERM
    print("programs: done")


async def streams(directory):
    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    path = os.path.join(directory, "socket")
    server = await asyncio.start_unix_server(echo, path)

    async def client(me):
        reader, writer = await asyncio.open_unix_connection(path)
        for i in range(ROUNDS // 2):
            writer.write(f"line {me} {i}\n".encode())
            assert await reader.readline() == f"LINE {me} {i}\n".encode()
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client(i) for i in range(TASKS)))
    server.close()
    await server.wait_closed()


async def others():
    loop = asyncio.get_running_loop()
    sums = await asyncio.gather(*(loop.run_in_executor(None, sum, range(1000 * i)) for i in range(6)))
    assert sums == [sum(range(1000 * i)) for i in range(6)]
    got = asyncio.Queue()
    loop.add_signal_handler(signal.SIGUSR1, got.put_nowait, "usr1")
    for _ in range(5):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert await got.get() == "usr1"
    loop.remove_signal_handler(signal.SIGUSR1)


async def main():
    await queues()
    await limits()
    await programs()
    with tempfile.TemporaryDirectory() as directory:
        await streams(directory)
    await others()
    print("at", asyncio.get_running_loop().time() > 0, os.getpid())


asyncio.run(main())
