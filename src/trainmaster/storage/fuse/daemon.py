"""The processes of a mount.

The *holder* claims the store, mounts, and starts a *server*, its child, which answers the kernel. The holder does
nothing else, so it has nothing to die of; it keeps the device open. When the server dies the mount stays: programs that
read and write files by passthrough notice nothing, others wait. The holder starts another server, which reads from the
shared table what is open and asks the kernel for the requests that have no answer. A server that dies five times a
minute is not replaced: the mount is taken away, with the reason in the log.

What the server needs is bounded: four threads with a mebibyte each, eight of cached metadata, and a table of open files
with `FILES_MAX` rows. More open files are refused. It stays below `MEMORY_BYTES_MAX`.

The mount ends when it is unmounted, by `trainmaster umount`, `umount`, or a signal to the holder; all changes of names
are in the metadata by then, and what the kernel had not written yet lies in the page cache of the disk below.
"""

import os
import resource
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Literal

from trainmaster.core.base.value import Value
from trainmaster.storage.fuse import mounting, protocol, store
from trainmaster.storage.fuse.channel import Buffer, Channel
from trainmaster.storage.fuse.contents import Contents
from trainmaster.storage.fuse.database import Database
from trainmaster.storage.fuse.opened import FILES_MAX, Opened, Shared
from trainmaster.storage.fuse.protocol import Feature, Operation
from trainmaster.storage.fuse.refused import Refused
from trainmaster.storage.fuse.tree import Request, Tree

MEMORY_BYTES_MAX: Final = 128 << 20
Mode = Literal["auto", "passthrough", "copying"]
_THREADS: Final = 4
_DEATHS: Final = 5
_DEATHS_S: Final = 60.0
_EIO: Final = 5
_SPARE_FILES: Final = 64


class Options(Value):
    store: str
    directory: str
    mode: Mode = "auto"
    cache_ms: int = 1000
    """For how long the kernel may believe names and attributes."""
    files_max: int = FILES_MAX


class Outcome(Value):
    """What the one who started a mount is told: it stands, or what is in its way."""

    pid: int = 0
    mode: str = ""
    why: str = ""
    """Why it copies, where it does; or why it does not stand."""
    what: str = ""
    fix: str = ""


Tell = Callable[[Outcome], None]
Log = Callable[[str], None]


def hold(options: Options, tell: Tell) -> int:
    """Mounts, and returns when the mount has ended: the exit code. `tell` is called once, in this process or in a child
    of it. Takes over the process: signals, limits, children."""
    root, directory = Path(options.store), Path(options.directory)
    try:
        mounting.refuse_machine()
        mounting.refuse_place(root, directory)
        claimed = store.claim(root, directory)
        log = store.teller(root, lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        mended = store.prepare(root)
        device = mounting.mount(root, directory)
    except Refused as error:
        tell(Outcome(what=error.what, why=error.why, fix=error.fix))
        return 1
    except OSError as error:
        tell(Outcome(what=f"cannot use the store {root}", why=str(error), fix="give a directory on a local disk"))
        return 1
    assert claimed >= 0
    if mended is not None:
        counts = f"{mended.removed} files without a name removed, {mended.emptied} that were never synced are empty"
        log(f"the last mount did not end well: {counts}")
        for id in mended.lost:
            log(f"DAMAGE: file {id} has lost its bytes; they were synced once")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: _let_go(directory, log))
    code = _keep_served(device, options, tell, log)
    if code == 0:
        store.conclude(root)
    return code


def _let_go(directory: Path, log: Log) -> None:
    try:
        mounting.unmount(directory, lazily=True)
    except OSError as error:
        log(f"cannot unmount: {error}")


def _keep_served(device: int, options: Options, tell: Tell, log: Log) -> int:
    shared = Shared()
    deaths: deque[float] = deque(maxlen=_DEATHS)
    while True:
        began = bool(shared.features)
        child = os.fork()
        if child == 0:
            _serve_and_exit(device, options, shared, tell, log)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return 0
        log(f"the server {child} died ({_ending(code)})")
        deaths.append(time.monotonic())
        often = len(deaths) == _DEATHS and deaths[-1] - deaths[0] < _DEATHS_S
        if not shared.features or (often and began):
            log("the mount is taken away, since its server dies again and again")
            _let_go(Path(options.directory), log)
            return 1


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _serve_and_exit(device: int, options: Options, shared: Shared, tell: Tell, log: Log) -> None:
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the holder unmounts, and that ends this process
        code = Server(device, options, shared, tell, log).run()
    except BaseException:  # noqa: BLE001  (a child must not go on as its parent)
        log("the server failed:\n" + traceback.format_exc())
    finally:
        os._exit(code)


class Server:
    """Answers the kernel until the mount ends."""

    def __init__(self, device: int, options: Options, shared: Shared, tell: Tell, log: Log) -> None:
        root = Path(options.store)
        self._options, self._shared, self._tell, self._log = options, shared, tell, log
        self._channel = Channel(device)
        self._database = Database(root / store.NAMES)
        self._contents = Contents(root / store.CONTENTS)
        limit = min(options.files_max, _more_files() - _SPARE_FILES)
        self._opened = Opened(shared, self._channel, self._contents, limit)
        self._dead: SimpleQueue[int | None] = SimpleQueue()
        self._tree = Tree(self._database, self._contents, self._opened, self._dead.put, options.cache_ms * 1_000_000)

    def run(self) -> int:
        """0 when the mount has ended."""
        if self._shared.features:
            self._opened.passthrough = bool(self._shared.features & Feature.PASSTHROUGH)
            files = self._opened.take_over()
            self._tree.take_over()
            self._log(f"a new server ({os.getpid()}) takes over with {files} open files")
            self._channel.resend()
        digger = threading.Thread(target=self._bury)
        threads = [threading.Thread(target=self._work, args=(slot,)) for slot in range(_THREADS)]
        for thread in (digger, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        self._dead.put(None)
        digger.join()
        self._database.close()
        return 0

    def _work(self, slot: int) -> None:
        buffer = Buffer()
        try:
            while length := self._channel.receive(buffer):
                self._answer(buffer, length, slot)
        except BaseException:  # noqa: BLE001  (one thread less would be a slow hang: better a new server)
            self._log("a thread of the server failed:\n" + traceback.format_exc())
            os._exit(1)

    def _answer(self, buffer: Buffer, length: int, slot: int) -> None:
        header = protocol.header(buffer.prefix)
        assert header.length == length, (header, length)
        if header.operation == Operation.INIT:
            self._start(header.unique, _body(buffer, length))
            return
        written = header.operation == Operation.WRITE
        body = bytes(buffer.prefix[protocol.HEADER_BYTES :]) if written else _body(buffer, length)
        request = Request(header.operation, header.unique, header.node, header.uid, header.gid, body, buffer.rest, slot)
        silent = header.operation in protocol.SILENT
        try:
            parts = self._tree.answer(request)
            if not silent:
                self._channel.send((protocol.answer(header.unique, sum(map(len, parts))), *parts))
        except OSError as error:
            number = error.errno or _EIO
            if number == _EIO:
                self._log(f"operation {header.operation} on file {header.node} failed: {error}")
            if not silent:
                self._channel.send((protocol.refusal(header.unique, number),))
        except Exception:  # noqa: BLE001  (a defect of ours ends one request, and is told)
            self._log(f"operation {header.operation} failed, which is a defect:\n" + traceback.format_exc())
            if not silent:
                self._channel.send((protocol.refusal(header.unique, _EIO),))

    def _start(self, unique: int, body: bytes) -> None:
        offered = protocol.start(body)
        if (offered.major, offered.minor) < (protocol.MAJOR, protocol.MINOR_LEAST):
            self._channel.send((protocol.refusal(unique, _EIO),))
            self._fail(f"the kernel speaks version {offered.major}.{offered.minor} of the protocol",
                       f"{protocol.MAJOR}.{protocol.MINOR_LEAST} is the least", "use Linux 5.4 or newer")  # fmt: skip
        wanted = protocol.WANTED | (0 if self._options.mode == "copying" else Feature.PASSTHROUGH)
        answer = protocol.started(offered, wanted)
        self._channel.send((protocol.answer(unique, len(answer)), answer))
        agreed, why = wanted & offered.features, ""
        if agreed & Feature.PASSTHROUGH:
            refusal = self._opened.probe()
            why = "" if refusal is None else f"the kernel refuses passthrough: {refusal.strerror}"
        elif wanted & Feature.PASSTHROUGH:
            why = "the kernel offers no passthrough (Linux 6.9 and newer do)"
        if why and self._options.mode == "passthrough":
            self._fail("the mount would have to copy", why, "run it as root on a newer kernel, or with --mode copying")
        self._shared.features = agreed if self._opened.passthrough else agreed & ~Feature.PASSTHROUGH
        mode = "passthrough" if self._opened.passthrough else "copying"
        self._log(f"mounted at {self._options.directory}: {mode}{', ' if why else ''}{why}")
        outcome = Outcome(pid=os.getppid(), mode=mode, why=why)
        threading.Thread(target=self._announce, args=(outcome,)).start()  # it asks the kernel, which asks us

    def _announce(self, outcome: Outcome) -> None:
        mounting.read_ahead(Path(self._options.directory))
        self._tell(outcome)

    def _fail(self, what: str, why: str, fix: str) -> None:
        self._tell(Outcome(what=what, why=why, fix=fix))
        os._exit(1)

    def _bury(self) -> None:
        """Ends files that nobody can reach any more, as many at a time as have come."""
        while (id := self._dead.get()) is not None:
            ids = [id]
            while not self._dead.empty():
                more = self._dead.get()
                if more is None:
                    self._dead.put(None)
                    break
                ids.append(more)
            try:
                store.clear(self._database, self._contents, ids)
            except OSError as error:
                self._log(f"{len(ids)} files without a name stay until the next mount: {error}")


def _body(buffer: Buffer, length: int) -> bytes:
    head = bytes(buffer.prefix[protocol.HEADER_BYTES : length])
    return head + bytes(buffer.rest[: length - protocol.PREFIX_BYTES]) if length > protocol.PREFIX_BYTES else head


def _more_files() -> int:
    """Raises the limit of open files as far as it may be; the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
