"""Python threads with queues, locks, events and sockets on the loopback device; sets of strings in their random order."""

import hashlib
import queue
import random
import socket
import sys
import threading
import time

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
jobs, results = queue.Queue(maxsize=8), queue.Queue()
order = hashlib.sha256()
counter = 0


def worker(me):
    global counter
    while True:
        job = jobs.get()
        if job is None:
            return
        counter = counter + 1
        results.put((me, job, job * job))


def collector(expected):
    for _ in range(expected):
        order.update(repr(results.get()).encode())


def serve(listener, clients):
    for _ in range(clients):
        connection, peer = listener.accept()
        with connection:
            order.update(repr(peer).encode())
            while data := connection.recv(100):
                connection.sendall(data[::-1])


def client(port):
    with socket.create_connection(("127.0.0.1", port)) as s:
        for i in range(20):
            text = f"message {i}".encode()
            s.sendall(text)
            assert s.recv(100) == text[::-1]


threads = [threading.Thread(target=worker, args=(i,)) for i in range(4)]
threads.append(threading.Thread(target=collector, args=(ROUNDS,)))
for t in threads:
    t.start()
for i in range(ROUNDS):
    jobs.put(i)
for _ in range(4):
    jobs.put(None)
for t in threads:
    t.join()

listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
threads = [threading.Thread(target=serve, args=(listener, 5))] + [threading.Thread(target=client, args=(port,)) for _ in range(5)]
for t in threads:
    t.start()
for t in threads:
    t.join()

words = {f"word {i}" for i in range(50)}
print("order", int(order.hexdigest()[:12], 16))
print("words", int(hashlib.sha256(" ".join(words).encode()).hexdigest()[:12], 16))
print("random", random.randrange(10**9), "at", time.time_ns(), "id", id(words))
