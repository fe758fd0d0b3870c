"""A warm process: imports what `trainmaster.training.PRELOAD` names, then forks a worker for each request, so that a
test pays for the imports once. Run as a program with the descriptor of a Unix socket as its argument. A request is a
JSON object (environ, module, argv, path of stderr) with at most one descriptor; the reply is the pid. A list of pids is
answered with the exit codes of those that have ended."""

import array
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import traceback
from typing import Any

MESSAGE_BYTES = 1 << 16


def main() -> None:
    import trainmaster.training

    gc.disable()  # as in a keeper
    for name in trainmaster.training.PRELOAD:
        importlib.import_module(name)
    gc.enable()
    threads = len(os.listdir("/proc/self/task"))
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.send(json.dumps({"threads": threads}).encode())
    ended: dict[int, int] = {}
    while True:
        data, ancillary, _, _ = channel.recvmsg(MESSAGE_BYTES, socket.CMSG_LEN(4))
        if not data:
            return
        descriptors = array.array("i")
        for _, _, raw in ancillary:
            descriptors.frombytes(raw)
        request = json.loads(data)
        if isinstance(request, list):
            reap(ended)
            channel.send(json.dumps({pid: ended[pid] for pid in request if pid in ended}).encode())
            continue
        child = os.fork()
        if child == 0:
            channel.close()
            become(request, list(descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps(child).encode())


def reap(ended: dict[int, int]) -> None:
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        ended[child] = os.waitstatus_to_exitcode(status)


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    os.environ.update(request["environ"])
    if descriptors:
        os.environ["TRAINMASTER_STORE_FD"] = str(descriptors[0])
    stream = os.open(request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 2)
    sys.argv = [request["module"], *request["argv"]]
    code = 1
    try:
        runpy.run_module(request["module"], run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except Exception:  # noqa: BLE001  (a worker's last word, as the interpreter would print it)
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
