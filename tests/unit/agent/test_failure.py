"""The first error of a worker, from records and from output."""

import pytest

from trainmaster.core.agent.failure import from_output, from_record, of_exit
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import encode
from trainmaster.core.recovery.events import Failure

AT = Instant(5)
TRACEBACK = """step 3
Traceback (most recent call last):
  File "/srv/job/train.py", line 90, in <module>
    main()
  File "/srv/job/model.py", line 12, in forward
    return torch.matmul(a, b)
  File "/venv/lib/python3.11/site-packages/torch/functional.py", line 400, in matmul
    return _VF.matmul(a, b)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)
[W] destroyed
"""


@pytest.mark.parametrize(
    ("output", "exception", "message", "location"),
    [
        (TRACEBACK, "RuntimeError", "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", "/srv/job/model.py:12"),
        (
            'Traceback (most recent call last):\n  File "/h/a.py", line 1, in <module>\n    import nosuch\n'
            "ModuleNotFoundError: No module named 'nosuch'\n",
            "ModuleNotFoundError",
            "No module named 'nosuch'",
            "/h/a.py:1",
        ),
        (
            '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/h/a.py", line 4, in f\n[rank0]:     x\n'
            "[rank0]: torch.distributed.DistNetworkError: The server socket failed: address already in use\n",
            "DistNetworkError",
            "The server socket failed: address already in use",
            "/h/a.py:4",
        ),
        (
            'Traceback (most recent call last):\n  File "/h/a.py", line 2, in <module>\n    f.write(b)\n'
            "OSError: [Errno 28] No space left on device\n",
            "OSError",
            "[Errno 28] No space left on device",
            "/h/a.py:2",
        ),
        (
            'Traceback (most recent call last):\n  File "/h/a.py", line 2, in <module>\n    ~~^^\nKeyboardInterrupt\n',
            "KeyboardInterrupt",
            "",
            "/h/a.py:2",
        ),
        (
            'Traceback (most recent call last):\n  File "/h/a.py", line 1, in f\nKeyError: 1\n\nDuring handling of the '
            'above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File "/h/a.py", '
            "line 9, in g\nValueError: two\n",
            "ValueError",
            "two",
            "/h/a.py:9",
        ),
    ],
)
def test_traceback_in_output(output: str, exception: str, message: str, location: str) -> None:
    """1. A worker printed this. 2. Its failure is read from it."""
    told = from_output(output, AT)
    assert told == Failure(at=AT, exception=exception, message=message, location=location)


@pytest.mark.parametrize("output", ["", "step 1\nstep 2\n", "Traceback (most recent call last):\n  File"])
def test_output_without_a_whole_traceback_tells_nothing(output: str) -> None:
    """1. There is no traceback, or a cut one. 2. Nothing is made up."""
    assert from_output(output, AT) is None


def test_records_of_both_kinds() -> None:
    """1. Our record comes back as it is. 2. torch's is understood. 3. A torn one tells nothing."""
    ours = Failure(at=Instant(1), exception="ValueError", message="m", location="a.py:3")
    assert from_record(encode(ours), AT) == ours
    stack = 'Traceback (most recent call last):\n  File "/h/t.py", line 8, in main\nValueError: bad\n'
    torchs = encode({"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": stack, "timestamp": "1"}}})
    assert from_record(torchs, AT) == Failure(at=AT, exception="ValueError", message="bad", location="/h/t.py:8")
    assert from_record(encode(ours)[:-3], AT) is None
    assert from_record(b"[]", AT) is None


@pytest.mark.parametrize(
    ("output", "code", "signal", "exception", "message"),
    [
        ("step 9 loss 2.1\n", None, 9, "SIGKILL", "killed by SIGKILL"),
        (TRACEBACK, None, 9, "SIGKILL", "killed by SIGKILL"),
        (
            "x\nterminate called without an active exception\n",
            None,
            6,
            "SIGABRT",
            "terminate called without an active exception",
        ),
        (
            TRACEBACK + "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
            "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4.\n[W1] another thread\n",
            None,
            6,
            "SIGABRT",
            "what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4.",
        ),
        (TRACEBACK + "step 7\n", None, 6, "RuntimeError", "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        ("bash: foo: command not found\n", 127, None, "", "bash: foo: command not found"),
        ("", 3, None, "", "exit code 3 without a word"),
        ("", None, 35, "SIG35", "killed by SIG35"),
    ],
)
def test_end_without_a_record(output: str, code: int | None, signal: int | None, exception: str, message: str) -> None:
    """1. A worker ended so and left this output. 2. The failure says the most that can be said."""
    told = of_exit(None, output, code, signal, AT)
    assert (told.exception, told.message) == (exception, message)
