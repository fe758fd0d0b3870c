"""Files at the edge: pickles that must not run anything, packed files, directories, and what users are told."""

import gzip
import io
import json
import os
import pickle
from pathlib import Path

import pytest

from trainmaster.cli.main import main
from trainmaster.core.diagnosis.evidence import Unusable
from trainmaster.live.diagnosis.files import evidence

FIELD = Path(__file__).parent / "field"


def as_pickles(case: str, to: Path) -> None:
    """The dumps of a case as PyTorch writes them: a pickle a rank, with the rank in the name only."""
    for file in sorted((FIELD / case).glob("fr_rank_*.json")):
        tree = json.loads(file.read_text())
        rank = tree.pop("rank")
        (to / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(tree, protocol=2))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object], str]:
    code = main(["diagnose", *arguments, "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def test_pickles_of_all_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. A directory of dumps as pickles, one of them packed. 2. The answer has the promised fields."""
    as_pickles("05-two-node-one-missing", tmp_path)
    packed = tmp_path / "nccl_trace_rank_1"
    packed.write_bytes(gzip.compress(packed.read_bytes()))
    code, answer, _ = told(capsys, str(tmp_path))
    assert code == 0
    assert (answer["kind"], answer["missing_ranks"], answer["waiting_ranks"]) == ("desync", [0], [1])
    promised = {"kind", "missing_ranks", "ahead_ranks", "waiting_ranks", "first_cause", "hosts", "confidence",
                "next_evidence", "advice"}  # fmt: skip
    assert promised <= answer.keys()


class Runs:
    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.target,)


class Refers(pickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        return "elsewhere" if obj == "x" else None


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_would_run_something(tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: int) -> None:
    """1. A dump whose pickle makes a directory when loaded. 2. It is refused with its name, and nothing was made."""
    crafted = tmp_path / "trace_rank_0"
    crafted.write_bytes(pickle.dumps({"entries": [Runs(str(tmp_path / "made"))]}, protocol))
    code, _, err = told(capsys, str(crafted))
    assert code == 2
    assert "refused: it names posix.mkdir" in err
    assert "Traceback" not in err
    assert not (tmp_path / "made").exists()


def test_harmless_names_are_refused_too(tmp_path: Path) -> None:
    """1. Names of builtins, and references outside. 2. All refused: a dump needs none."""
    outside = io.BytesIO()
    Refers(outside, 2).dump({"entries": ["x"]})
    for data in (pickle.dumps({"entries": [complex(1, 2)]}, 2), pickle.dumps({1: {2, 3}}, 2), outside.getvalue()):
        (tmp_path / "rank_0").write_bytes(data)
        with pytest.raises(Unusable, match="refused"):
            evidence([str(tmp_path / "rank_0")])


def test_damaged_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. A pickle cut at every length, a packed file cut, binary rubbish, nothing at all. 2. Never a traceback."""
    whole = pickle.dumps({"rank": 1, "entries": [{"collective_seq_id": 1, "profiling_name": "nccl:x"}]}, 2)
    for length in range(3, len(whole)):
        (tmp_path / "rank_1").write_bytes(whole[:length])
        with pytest.raises(Unusable):
            evidence([str(tmp_path / "rank_1")])
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"x" * 5000)[:-20])
    (tmp_path / "b.bin").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "empty").mkdir()
    for name, code in (("a.log.gz", 2), ("b.bin", 2), ("none.log", 3), ("empty", 2)):
        found, _, err = told(capsys, str(tmp_path / name))
        assert (found, name in err, "try:" in err) == (code, True, True), err


def test_bad_files_beside_good_ones_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. Dumps of two ranks, beside an empty log, a cut pickle, one that is a program, and an empty directory. 2. The
    answer is that of the good ones, and the others are named with a reason, on the page as well. 3. Only bad ones, and
    a name that does not exist, are errors."""
    good, bad, none = tmp_path / "good", tmp_path / "bad", tmp_path / "none"
    for each in (good, bad, none):
        each.mkdir()
    as_pickles("05-two-node-one-missing", good)
    (bad / "a.log").write_text("")
    (bad / "b.pkl").write_bytes(pickle.dumps({"entries": [1, 2]})[:-4])
    (bad / "c.pkl").write_bytes(pickle.dumps({"entries": [Runs(str(tmp_path / "made"))]}))
    code, answer, _ = told(capsys, str(bad), str(none), str(good))
    assert (code, answer["kind"], answer["missing_ranks"]) == (0, "desync", [0])
    skipped = answer["skipped"]
    assert isinstance(skipped, list)
    assert len(skipped) == 4
    for line, (name, reason) in zip(
        skipped,
        ((bad / "a.log", "is empty"), (bad / "b.pkl", "cut"), (bad / "c.pkl", "refused"), (none, "no files")),
        strict=True,
    ):
        assert line.startswith(f"{name}: ")
        assert reason in line
    assert main(["diagnose", str(bad), str(good)]) == 0
    page = capsys.readouterr().out
    assert f"  {bad / 'a.log'}: the file is empty" in page.partition("Skipped")[2]
    assert not (tmp_path / "made").exists()
    assert told(capsys, str(bad), str(none))[0] == 2
    assert told(capsys, str(good), str(tmp_path / "absent.log"))[0] == 3


def test_logs_that_no_table_reader_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1. A log with the carriage returns of a progress bar, one with a line of 140,000 characters. 2. Both are read as
    logs: the exception that they end with is the first cause."""
    raised = 'Traceback (most recent call last):\n  File "train.py", line 3, in step\nValueError: no such layer\n'
    for name, text in (("bar.log", "epoch, loss\nstep 1\rstep 2\rstep 3\n"), ("long.log", f"a, b\n{'x' * 140_000}\n")):
        (tmp_path / name).write_text(text + raised)
        code, answer, err = told(capsys, str(tmp_path / name))
        assert code == 0, err
        assert "ValueError" in json.dumps(answer["first_cause"])


def test_the_page_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(FIELD / "01-one-rank-behind" / "watchdog.log")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("kind:           desync\n")
    assert "missing_ranks:  rank 1\n" in out
    assert "hosts:          no fault of a host is shown\n" in out
    assert "What to do\n" in out
