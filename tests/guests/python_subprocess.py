"""Programs and signals from Python: pipelines, limits of time, groups and sessions, handlers, alarms, wakeup descriptors, wait statuses."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading

first = subprocess.Popen(["seq", "5000"], stdout=subprocess.PIPE)
second = subprocess.Popen(["grep", "7"], stdin=first.stdout, stdout=subprocess.PIPE)
third = subprocess.Popen(["wc", "-l"], stdin=second.stdout, stdout=subprocess.PIPE, text=True)
first.stdout.close()
second.stdout.close()
out, _ = third.communicate()
assert out.strip() == "1355" and [p.wait() for p in (first, second, third)] == [0, 0, 0], out
# A reader that goes away early: the writer gets SIGPIPE.
writer = subprocess.Popen(["yes"], stdout=subprocess.PIPE)
assert writer.stdout.readline() == b"y\n"
writer.stdout.close()
assert writer.wait() == -signal.SIGPIPE
try:
    subprocess.run(["sleep", "1000000"], timeout=0.01)
    raise AssertionError("no limit")
except subprocess.TimeoutExpired:
    print("time is over")
done = subprocess.run("echo $COLOUR; exit 4", shell=True, env={"COLOUR": "green"}, capture_output=True, text=True)
assert (done.returncode, done.stdout) == (4, "green\n")
child = subprocess.Popen(["sh", "-c", "echo ready; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
assert child.stdout.readline() == b"ready\n" and os.getsid(child.pid) == child.pid
os.killpg(child.pid, signal.SIGTERM)
assert child.wait() == -signal.SIGTERM
print("programs: done")

seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
for _ in range(5):
    os.kill(os.getpid(), signal.SIGUSR1)
assert seen == [signal.SIGUSR1] * 5


class Alarm(Exception):
    pass


def ring(number, frame):
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise Alarm


signal.signal(signal.SIGALRM, ring)
ours, theirs = socket.socketpair()
try:
    # Again and again: the first one may come just before the wait.
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    ours.recv(1)
    raise AssertionError("nobody sent anything")
except Alarm:
    print("an exception out of a handler")
# By a descriptor: the number of the signal arrives as a byte.
theirs.setblocking(False)
signal.set_wakeup_fd(theirs.fileno())
threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
readable, _, _ = select.select([ours], [], [])
assert readable == [ours] and ours.recv(10) == bytes([signal.SIGUSR1])
signal.set_wakeup_fd(-1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)
assert signal.sigpending() == {signal.SIGUSR2} and signal.sigwait([signal.SIGUSR2]) == signal.SIGUSR2
assert signal.sigtimedwait([signal.SIGUSR2], 0.001) is None

statuses = []
for way in range(3):
    pid = os.fork()
    if pid == 0:
        if way == 0:
            os._exit(7)
        if way == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        os.execvp("sh", ["sh", "-c", "exit 9"])
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
assert statuses == [7, -9, 9]
try:
    os.waitpid(-1, 0)
    raise AssertionError("no child")
except ChildProcessError:
    print("process", os.getpid())
sys.stdout.flush()
os._exit(0)
