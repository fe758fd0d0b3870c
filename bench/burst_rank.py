"""One process of a burst: `python -m bench.burst_rank WORDS` (JSON). It says `ready`, waits for a line, and tells as
JSON what it did; a reader reads until a second line comes."""

import json
import mmap
import sys
import threading
import time
from pathlib import Path

from trainmaster.core.base.value import Value, decode
from trainmaster.storage.admission.client import AdmittedSink, AdmittedSource, Asking
from trainmaster.storage.admission.talk import Open
from trainmaster.storage.blob_store import Sink, Source
from trainmaster.storage.directory_store import DirectoryStore
from trainmaster.storage.pieces import Memory, Pieces, address_of
from trainmaster.storage.transfer import write

READ_BYTES = 4 << 20
READ_THREADS = 4


class Words(Value):
    root: str
    writer: str
    memory: str = ""
    """What a writer writes; empty: a reader of the blob `data/batches`."""
    save: str = ""
    writers: int = 1
    admitted: bool = True


def save(words: Words) -> None:
    with Path(words.memory).open("rb") as stream:
        view = memoryview(mmap.mmap(stream.fileno(), 0, flags=mmap.MAP_PRIVATE))
    view[:: mmap.PAGESIZE].tobytes()  # the state of a rank has been touched before it is saved
    _meet()
    opening = Open(writer=words.writer, kind="checkpoint", size_bytes=len(view), save=words.save, writers=words.writers)
    asking = Asking.of(Path(words.root), opening) if words.admitted else None
    sink: Sink = DirectoryStore(Path(words.root)).create(words.save, words.writer, len(view))
    if asking is not None:
        sink = AdmittedSink(sink, asking)
    written = write(sink, Pieces([Memory(address_of(view), len(view), view)]))
    _tell(ended_ns=time.monotonic_ns(), crc32=written.crc32, free=asking.free if asking is not None else "")


def read(words: Words) -> None:
    root = Path(words.root)
    source: Source = DirectoryStore(root).open("data", "batches")
    asking = Asking.of(root, Open(writer=words.writer, kind="data")) if words.admitted else None
    if asking is not None:
        source = AdmittedSource(source, asking)
    came: list[int] = []
    stop = threading.Event()

    def work(number: int) -> None:
        into = memoryview(mmap.mmap(-1, READ_BYTES))
        at = number * READ_BYTES
        while not stop.is_set():
            source.read_into([into], at)
            came.append(time.monotonic_ns())
            at = (at + READ_THREADS * READ_BYTES) % (source.size_bytes // READ_BYTES * READ_BYTES)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(READ_THREADS)]
    _meet()
    for thread in threads:
        thread.start()
    sys.stdin.readline()
    stop.set()
    for thread in threads:
        thread.join()
    source.close()
    _tell(came_ns=came, free=asking.free if asking is not None else "")


def _meet() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


def _tell(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    words = decode(sys.argv[1], Words)
    if words.memory:
        save(words)
    else:
        read(words)
