"""Forms of evidence, and what each proves."""

import pytest

from tests.diagnosis.lines import CAUGHT, COUNTERS, OLD, OLDEST, SUMMARY, TRACEBACK, caught
from trainmaster.core.diagnosis.answer import Diagnosis, Kind
from trainmaster.core.diagnosis.evidence import Unusable
from trainmaster.core.diagnosis.judge import judge
from trainmaster.core.diagnosis.read import read_all

JOB = ("job.json", '{"world_size": 8, "hosts": {"5": "gpu-9"}}')


def judged(*files: tuple[str, str]) -> Diagnosis:
    return judge(read_all(files))


# --- watchdogs


@pytest.mark.parametrize("counters", COUNTERS, ids=["2.3", "2.5", "2.7"])
def test_counters_of_all_versions(counters: str) -> None:
    """1. Two ranks of four time out in 808, one has entered it and more, one is at 807. 2. That one is missing."""
    lines = caught((0, 2, 3), 808) + "".join(
        counters.format(rank=rank, seq=808, entered=811, done=807) for rank in (0, 2, 3)
    )
    lines += counters.format(rank=1, seq=807, entered=807, done=807)
    found = judged(("log", lines))
    assert (found.kind, found.missing_ranks, found.waiting_ranks) == (Kind.DESYNC, (1,), (0, 2, 3))


def test_no_sequence_number() -> None:
    """1. Lines of 1.12, which have no number. 2. The rank that says nothing is missing."""
    lines = "".join(OLDEST.format(rank=rank, op="BROADCAST") for rank in range(8) if rank != 3)
    found = judged(("log", lines), JOB)
    assert (found.missing_ranks, found.unseen_ranks, found.confidence) == ((3,), (3,), "medium")


def test_a_rank_that_is_far_behind() -> None:
    """1. Seven ranks time out in 96117 of an all-reduce, one in 64088. 2. Numbers went apart: that one is missing."""
    lines = "".join(OLD.format(rank=rank, seq=96117 if rank != 7 else 64088, op="ALLREDUCE") for rank in range(8))
    found = judged(("log", lines))
    assert (found.kind, found.missing_ranks, found.waiting_ranks) == (Kind.DESYNC, (7,), tuple(range(7)))


def test_another_operation() -> None:
    """1. One rank is in an all-gather where the others are in an all-reduce of the same number. 2. It went apart."""
    lines = caught((0, 1, 3), 880) + CAUGHT.format(rank=2, last=2, seq=880, op="ALLGATHER")
    found = judged(("log", lines))
    assert (found.kind, found.missing_ranks, found.differing_ranks) == (Kind.DESYNC, (2,), (2,))
    assert found.waiting_ranks == (0, 1, 3)
    assert "all_gather" in found.summary


def test_all_are_there() -> None:
    """1. All eight ranks time out in the same collective with equal sizes. 2. The transport is to be looked at."""
    found = judged(("log", caught(tuple(range(8)), 12)), JOB)
    assert (found.kind, found.missing_ranks, found.hosts) == (Kind.IN_FLIGHT_STALL, (), ())
    assert "links" in found.next_evidence[0]


def test_groups_wait_for_each_other() -> None:
    """1. In group 1 ranks 0 and 1 wait for 2; in group 2 rank 2 waits for 3, which is nowhere. 2. Rank 3 is missing."""

    def dump(rank: int, group: str, members: str, entered: bool, at: int) -> tuple[str, str]:
        entry = {
            "process_group": [group, ""],
            "collective_seq_id": 5,
            "profiling_name": "nccl:all_reduce",
            "state": "started" if entered else "completed",
            "time_created_ns": at,
        }
        status = {group: {"last_enqueued_collective": 5 if entered else 4, "last_completed_collective": 4}}
        tree = {"rank": rank, "pg_config": {group: {"ranks": members}}, "pg_status": status}
        return f"fr_{rank}_{group}.json", as_json({**tree, "entries": [entry] if entered else []})

    found = judged(
        dump(0, "1", "[0, 1, 2]", True, 100), dump(1, "1", "[0, 1, 2]", True, 100),
        dump(2, "1", "[0, 1, 2]", False, 0), dump(2, "2", "[2, 3]", True, 900), dump(3, "2", "[2, 3]", False, 0),
    )  # fmt: skip
    assert found.missing_ranks == (3,)
    assert found.collective == "all_reduce 5 of group 2"


def as_json(tree: object) -> str:
    import msgspec

    return msgspec.json.encode(tree).decode()


# --- what came first


def test_an_exception_behind_time_outs() -> None:
    """1. Rank 2 raises; ten minutes later the others time out. 2. The exception is the cause."""
    raised = "2026-06-26 05:04:31,100 INFO step 9\n" + TRACEBACK.format(head="", error="ValueError: bad sample 17")
    found = judged(("rank2.log", raised), ("others.log", caught((0, 1, 3), 10)))
    assert (found.kind, found.missing_ranks, found.confidence) == (Kind.USER_EXCEPTION, (2,), "high")
    assert "ValueError: bad sample 17" in found.first_cause
    assert "/app/data.py:77" in found.first_cause
    assert found.hosts == ()


def test_the_first_of_two_exceptions() -> None:
    """1. Two ranks raise, the later one stands first in the files. 2. Time decides."""
    late = "2026-06-26 05:04:39,000 x\n" + TRACEBACK.format(head="[rank0]: ", error="KeyError: 'b'")
    early = "2026-06-26 05:04:31,000 x\n" + TRACEBACK.format(head="[rank6]: ", error="KeyError: 'a'")
    assert judged(("a.log", late), ("b.log", early)).first_cause.startswith(
        "rank 6 at 06-26 05:04:31.000: KeyError: 'a'"
    )


def test_an_exception_after_the_time_out_is_no_cause() -> None:
    raised = "2026-06-26 05:15:31,100 INFO step 9\n" + TRACEBACK.format(head="", error="ValueError: no state")
    found = judged(("rank2.log", raised), ("others.log", caught((0, 1, 3), 10)))
    assert (found.kind, found.missing_ranks) == (Kind.DESYNC, (2,))
    assert any("came later" in line for line in found.details)


def test_only_echoes() -> None:
    """1. Every rank lost its peers. 2. Nobody is named; the silent rank is what to look at."""
    closed = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:22911\n"
    found = judged(*((f"rank{rank}.log", closed) for rank in range(7)), JOB)
    assert (found.kind, found.missing_ranks, found.hosts) == (Kind.UNDETERMINED, (), ())
    assert found.next_evidence[0] == "the log of rank 7"


def test_a_killed_process() -> None:
    found = judged(("log", SUMMARY))
    assert (found.kind, found.confidence) == (Kind.KILLED, "high")
    assert found.first_cause.startswith("rank 11 on gpu-003")


def test_hardware_in_a_log() -> None:
    """1. One rank reports an ECC error, the others time out. 2. Its host is to be checked."""
    line = "[rank5]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    found = judged(("log", line + caught((1, 2, 3), 880)), JOB)
    assert (found.kind, found.hosts) == (Kind.HARDWARE, ("gpu-9",))


def test_torchruns_error_file() -> None:
    tree = {"message": {"message": "RuntimeError: no", "extraInfo": {"timestamp": "1719378870", "py_callstack": ""}}}
    found = judged(("attempt_0/3/error.json", as_json(tree)))
    assert (found.kind, found.first_cause) == (
        Kind.USER_EXCEPTION, "rank 3 at 06-26 05:14:30.000: RuntimeError: no (attempt_0/3/error.json, line 1)",
    )  # fmt: skip


def test_the_work_was_done() -> None:
    """1. The end is told, then a rank aborts, or others time out. 2. It is the leaving, and nobody is blamed."""
    done = "2026-06-26 05:00:00,000 [rank0] INFO Training complete\n"
    abort = '[rank1]:[W626 05:00:03.1 ProcessGroupNCCL.cpp:1] Failed to check the "should dump" flag on TCPStore\n'
    for after in (abort + "terminate called without an active exception\n", caught((1, 2, 3), 9)):
        found = judged(("log", done + after))
        assert (found.kind, found.hosts) == (Kind.TEARDOWN, ())
    assert judged(("log", abort + done.replace("05:00:00", "05:00:09"))).kind is not Kind.TEARDOWN


def test_the_transport_gave_up() -> None:
    """1. Two hosts name the same peer in errors 12. 2. They are victims; the peer's links are to be looked at."""
    line = (
        "{0}:1:2 [0] NET/IB : Got completion from peer 10.0.0.7<4791> with error 12, opcode 0, len 0, vendor err 129\n"
    )
    found = judged(*((f"{host}.log", line.format(host)) for host in ("gpu-004", "gpu-005")))
    assert (found.kind, found.hosts, found.confidence) == (Kind.NETWORK, (), "medium")
    assert "10.0.0.7" in found.summary


def test_an_address_of_an_earlier_attempt() -> None:
    line = "RuntimeError: Gloo connectFullMesh failed with [gloo/pair.cc:144] no error, SO_ERROR: Connection refused\n"
    assert judged(("rank1.log", line)).kind is Kind.LAUNCH_FAILURE


@pytest.mark.parametrize(
    ("line", "missing", "differing"),
    [
        ("RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms\n", (1, 3), ()),
        ("Stalled ops: allreduce.w [ready ranks: 5, 1, 4, 7, 2, 3]\n", (0, 6), ()),
        ("Stalled ops: allreduce.w [missing ranks: 2, 4]\n", (2, 4), ()),
        (
            "Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint("
            "SequenceNumber=21, OpType=ALLREDUCE, x), but Rank 1 is running collective: CollectiveFingerPrint("
            "SequenceNumber=21, OpType=BARRIER)\n",
            (),
            (0, 1),
        ),
        ("[rank2]: RuntimeError: [enforce fail at pair.cc:446] op.preamble.length <= op.nbytes. 16 vs 4\n", (), ()),
    ],
)
def test_checks_of_the_collectives(line: str, missing: tuple[int, ...], differing: tuple[int, ...]) -> None:
    found = judged(("log", line), JOB)
    assert (found.kind, found.missing_ranks, found.differing_ranks) == (Kind.DESYNC, missing, differing)


# --- measures


def rows(slow: dict[tuple[int, int], float], steps: int = 40, name: str = "forward_ms") -> tuple[str, str]:
    """Steps of eight ranks at about 100; `slow` adds."""
    lines = [f"{s},{r},{100 + r * 0.1 + slow.get((s, r), 0.0)}" for s in range(steps) for r in range(8)]
    return "steps.csv", "\n".join([f"step,rank,{name}", *lines]) + "\n"


def test_pauses_that_rotate_are_no_hosts_fault() -> None:
    """1. Every third step another rank takes 150 ms more. 2. Garbage collection is proposed, no rank is named."""
    found = judged(rows({(step, step * 7 % 8): 150.0 for step in range(0, 40, 3)}))
    assert (found.kind, found.slow_ranks, found.hosts) == (Kind.ROTATING_PAUSES, (), ())
    assert "garbage collection" in found.advice[0]


def test_a_rank_that_is_late_every_time() -> None:
    found = judged(rows({(step, 5): 150.0 for step in range(40)}))
    assert (found.kind, found.slow_ranks) == (Kind.STRAGGLER, (5,))
    assert judged(rows({(step, 5): 20.0 for step in range(40)})).kind is Kind.NONE
    assert judged(rows({}, name="step_ms")).kind is Kind.UNDETERMINED


def test_who_waits_least_is_slow() -> None:
    """1. Seven ranks wait 200 ms in the all-reduce, one 10 ms. 2. That one is what they wait for."""
    found = judged(("t.csv", "rank,allreduce_ms\n" + "".join(f"{r},{10 if r == 2 else 200 + r}\n" for r in range(8))))
    assert (found.kind, found.slow_ranks) == (Kind.STRAGGLER, (2,))


def test_uneven_batches() -> None:
    """1. One rank has a batch less than the others. 2. It runs out first, and the others wait."""
    found = judged(("batches.csv", "rank,batches\n0,101\n1,100\n2,101\n3,101\n"))
    assert (found.kind, found.missing_ranks, found.waiting_ranks) == (Kind.DESYNC, (1,), (0, 2, 3))


# --- what can't be read


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.log", "", "empty"),
        ("a.json", "{", "begins as JSON"),
        ("a.json", '{"entries": [{"collective_seq_id": 1', "begins as JSON"),
        ("a.json", '{"entries": 5, "rank": 1}', "no list"),
        ("a.json", '{"entries": [5], "rank": 1}', "no mapping"),
        ("a.json", '{"entries": [{"profiling_name": "nccl:x"}], "rank": 1}', "sequence number"),
        ("a.json", '{"entries": [], "pg_config": {"0": {"ranks": "[0, __import__]"}}, "rank": 1}', "no list"),
        ("a.json", '{"entries": []}', "of which rank"),
        ("a.json", '[3, {"a": 1}]', "no dump"),
        ("a.json", "[" * 20_000, "nested"),
        ("a.csv", "rank,step_ms\n0,1\n1\n", "1 cells"),
        ("a.csv", 'pair,seconds\n"0,1,2",3\n', "two members"),
        ("a.log", "\x01\x02\x03\x04" * 100, "no text"),
        ("ras.txt", "1 ranks have launched up to operation 640\n", "table of communicators"),
    ],
)
def test_garbage_is_refused_with_its_place(name: str, text: str, reason: str) -> None:
    with pytest.raises(Unusable) as caught_:
        read_all([(name, text)])
    assert reason in caught_.value.reason
    assert caught_.value.place.startswith(name)
    assert caught_.value.fix


def test_a_log_that_says_nothing_is_not_healthy() -> None:
    found = judged(("a.log", "hello\nworld\n"))
    assert (found.kind, found.confidence) == (Kind.UNDETERMINED, "low")
    assert "none of which tells of a failure" in found.details[0]


# --- many ranks


def test_four_thousand_ranks() -> None:
    """1. Dumps of 4,096 ranks, two of them behind, three not there. 2. Named, and told in a line."""

    def dump(rank: int) -> tuple[str, str]:
        entered = rank not in (77, 4000)
        entries = [
            {"process_group": ["0", "default_pg"], "collective_seq_id": seq, "profiling_name": "nccl:all_reduce",
             "input_sizes": [[8]], "state": "completed" if seq < 9 else "started"}
            for seq in range(8, 10 if entered else 9)
        ]  # fmt: skip
        config = {"0": {"ranks": str([0, 4095])}}
        return f"fr_rank_{rank}.json", as_json({"rank": rank, "pg_config": config, "entries": entries})

    found = judged(*(dump(rank) for rank in range(4096) if rank not in (1, 2, 3)), ("j.json", '{"world_size": 4096}'))
    assert (found.kind, found.missing_ranks) == (Kind.DESYNC, (77, 4000))
    assert len(" ".join((found.summary, *found.details))) < 600


# --- our own log


def exited(rank: int, at_s: int, message: str, epoch: int = 1, signal: int | None = None) -> dict[str, object]:
    failure = {"at": at_s * 1_000_000, "exception": "ValueError", "message": message, "location": ""}
    return {
        "index": at_s,
        "sentence": "",
        "event": {
            "type": "worker-exited", "at": at_s * 1_000_000, "host": f"h{rank // 2}", "attempt": "job-1.a1",
            "epoch": epoch, "rank": rank, "how": "failed", "exit_code": None if signal else 1, "signal": signal,
            "attached": True, "phase": 5, "step": 9, "step_at": 0, "save_s": 0.0,
            "failure": None if signal else failure,
        },
    }  # fmt: skip


def test_events_of_our_own_log() -> None:
    """1. The log of a job, as lines and as a page: an echo came in first, the cause a moment before. 2. The cause."""
    rows = [
        exited(0, 20, "Connection closed by peer"),
        exited(3, 19, "bad sample"),
        {"index": 1, "event": {"type": "x"}},
    ]
    for text in ("\n".join(map(as_json, rows)) + "\n", as_json({"schema": "s", "items": rows})):
        found = judged(("events.jsonl", text))
        assert (found.kind, found.hosts) == (Kind.USER_EXCEPTION, ())
        assert "rank 3 on h1" in found.first_cause
        assert "bad sample" in found.first_cause
    assert judged(("e.jsonl", as_json([exited(2, 5, "", signal=9)]))).kind is Kind.KILLED


def test_the_same_end_of_every_membership() -> None:
    rows = [exited(epoch % 4, epoch * 100, "no module", epoch) for epoch in range(1, 5)]
    found = judged(("events.jsonl", as_json(rows)))
    assert (found.hosts, found.confidence) == ((), "high")
    assert "stop" in found.advice[0]
