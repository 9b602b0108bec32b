"""Files from Python: mmap, struct, sqlite3 with several connections and threads, tempfile, pathlib, locks, zlib, os.sendfile."""

import fcntl
import mmap
import os
import pathlib
import sqlite3
import struct
import tempfile
import threading
import zlib

directory = tempfile.TemporaryDirectory()
top = pathlib.Path(directory.name)
path = top / "mapped"
path.write_bytes(bytes(10000))
with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
    record = struct.Struct("<QdH6s")
    for i in range(400):
        record.pack_into(memory, i * record.size, i * i, i / 8, i, b"text %d" % (i % 10))
    memory.flush()
    assert record.unpack_from(memory, 77 * record.size) == (77 * 77, 77 / 8, 77, b"text 7")
    assert memory.find(b"text 9") == 9 * record.size + 18
    memory.resize(20000)
    memory[19999] = 7
    assert os.pread(file.fileno(), 2, 19998) == b"\0\7"
assert path.stat().st_size == 20000
print("checksum", zlib.crc32(path.read_bytes()))

# A database, written by two threads with connections of their own.
database = top / "database"


def insert(me):
    connection = sqlite3.connect(database, timeout=1000)
    for i in range(20):
        with connection:
            connection.execute("INSERT INTO words VALUES (?, ?)", (me * 100 + i, f"word {me} {i}"))
    connection.close()


connection = sqlite3.connect(database)
connection.execute("PRAGMA synchronous = OFF")
connection.execute("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT)")
connection.commit()
threads = [threading.Thread(target=insert, args=(i,)) for i in range(2)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert connection.execute("SELECT count(*), sum(id) FROM words").fetchone() == (40, sum(range(20)) * 2 + 2000)
try:
    with connection:
        connection.execute("INSERT INTO words VALUES (500, 'kept?')")
        connection.execute("INSERT INTO words VALUES (500, 'twice')")
except sqlite3.IntegrityError:
    pass
assert connection.execute("SELECT count(*) FROM words WHERE id = 500").fetchone() == (0,)
order = [id for (id,) in connection.execute("SELECT id FROM words ORDER BY rowid")]
connection.close()
print("words", len(order))

with open(top / "locked", "w+b") as one, open(top / "locked", "r+b") as two:
    fcntl.flock(one, fcntl.LOCK_EX)
    try:
        fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        raise AssertionError("two locks")
    except BlockingIOError:
        pass
    one.write(b"0123456789" * 100)
    one.flush()
    assert os.sendfile(two.fileno(), one.fileno(), 0, 100) == 100
for i in range(5):
    (top / "sub" / str(i)).mkdir(parents=True, exist_ok=True)
    (top / "sub" / str(i) / "file").write_text("x" * i)
    (top / "sub" / f"link{i}").symlink_to(str(i))
assert sorted(p.name for p in (top / "sub").glob("*/file") if p.stat().st_size > 2) == ["file"] * 4
assert sum(p.stat().st_size for p in top.rglob("file") if not p.parent.is_symlink()) == 10
name = directory.name
directory.cleanup()
assert not os.path.exists(name)
print("at", os.times().elapsed > 0, os.getpid())
