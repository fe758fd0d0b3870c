"""Recorded troubles of other people's jobs, with the right verdict for each; `tests/cases/*/expected.md` tells them."""

import json
import re
from pathlib import Path

from trainmaster.core.base.ids import JobId
from trainmaster.core.base.time import seconds
from trainmaster.core.checkpoint.listing import Entry, Mount, Shard, Unpublished, judge_hosts, judge_shards
from trainmaster.core.checkpoint.position import Position, audit_epoch, proceed
from trainmaster.core.checkpoint.publish import Occupant, collisions, occupant
from trainmaster.core.checkpoint.retention import retire
from trainmaster.core.checkpoint.select import Refused, Resume, Verify, identify, select
from trainmaster.core.checkpoint.space import Volume, before_save, explain
from trainmaster.core.recovery.grace import Preemption, report

CASES = Path(__file__).parents[3] / "cases"
JOB = JobId("job-1")
OURS = {"s": JOB, "e": JOB, ".": JOB}
UNITS = {"G": 10**9, "T": 10**12}


def case(number: int) -> Path:
    return next(CASES.glob(f"{number}-*"))


def data(number: int, name: str) -> dict[str, int]:
    loaded: dict[str, int] = json.loads((case(number) / name).read_text())
    return loaded


def shard_sets() -> dict[str, list[Shard]]:
    sets: dict[str, list[Shard]] = {}
    for line in (case(19) / "ls.txt").read_text().splitlines():
        words = line.split()
        label, _, _ = words[-1].partition("-")
        number = re.search(r"shard(\d+)", words[-1])
        assert number
        sets.setdefault(label, []).append(Shard(name=words[-1], index=int(number[1]), size_bytes=int(words[4])))
    return sets


def test_zero_byte_and_short_shards() -> None:
    """1. The set `checkpoint_last` has empty shards and a short one. 2. The other has one shard under a temporary
    name only. 3. Neither is whole; other shards that the partial listing lacks are not called missing."""
    sets = shard_sets()
    last = judge_shards("checkpoint_last", sets["checkpoint_last"])
    assert [problem.token for problem in last] == ["empty-shard", "short-shard"]
    assert last[0].sentence == "checkpoint_last: shard 0, 103, 112 has no bytes"
    assert last[1].sentence == "checkpoint_last: shard 104 is truncated, 581828608 < 583649007 bytes"
    older = judge_shards("checkpoint_23_22750", sets["checkpoint_23_22750"])
    assert [(problem.token, problem.files) for problem in older] == [
        ("unfinished-shard", ("checkpoint_23_22750-model_part-7-shard96.pt.tmp",))
    ]
    counted = judge_shards("checkpoint_23_22750", sets["checkpoint_23_22750"], expected=128)
    assert counted[-1].token == "missing-shard"
    assert counted[-1].numbers == {"missing": 123}


def entries(number: int, complete_with: str, prefix: str = "") -> list[Entry]:
    rows = re.findall(r"^  (\S+)/\s+(.*)$", (case(number) / "tree.txt").read_text(), re.MULTILINE)
    return [
        Entry(
            name=name.removeprefix(prefix).replace("_", "-") if prefix else name,
            complete=complete_with in held,
            owner=OURS.get(name[0]),
        )
        for name, held in ((name, held.partition("(")[0].split()) for name, held in rows)
    ]


def test_leftover_in_the_way_of_a_later_save() -> None:
    """1. Step 2000 was cut while it was saved. 2. The resume from 1000 is right. 3. The collision at 2000 is known now,
    and the answer is to move the leftover aside, the same for all ranks."""
    listed = entries(21, ".metadata", prefix="epoch_0_")
    assert select([1000], {}) == Verify(step=1000)
    assert select([1000], {1000: ()}) == Resume(step=1000, sentence="")
    met = collisions(listed, resume_step=1000, save_every_steps=data(21, "resume.json")["save_every"])
    assert [(problem.token, problem.numbers["step"]) for problem in met] == [("leftover-in-the-way", 2000)]
    assert occupant(listed, 2000, JOB) == Occupant.LEFTOVER
    assert occupant(listed, 1000, JOB) == Occupant.PUBLISHED
    assert occupant(listed, 3000, JOB) == Occupant.NOTHING


def test_retention_while_a_save_is_in_flight() -> None:
    """Keep two, one of them being saved: 100 and the abandoned 200 go, 300, the staging and strange names stay."""
    config = data(23, "config.json")
    plan = retire(
        entries(23, ".metadata"),
        keep=config["keep_latest_k"],
        job=JOB,
        attempt=1,
        epoch=1,
        in_flight=Unpublished(step=config["saving_step"], epoch=0),
    )
    assert plan.delete == ("step-100", "step-200")
    assert plan.keep == (".staging-step-400", "step-300")
    assert plan.foreign == ("my_notes",)


def volumes() -> dict[str, Volume]:
    rows = [line.split() for line in (case(25) / "df.txt").read_text().splitlines()[1:]]
    sizes = {row[6]: [int(float(text[:-1]) * UNITS[text[-1]]) for text in (row[1], row[3])] for row in rows}
    return {
        row[6]: Volume(
            path=row[6],
            kind=row[0],
            size_bytes=sizes[row[6]][0],
            free_bytes=sizes[row[6]][1],
            inodes_used_percent=int(row[5].rstrip("%")),
        )
        for row in rows
    }


def test_no_space_left_with_459_gigabytes_free() -> None:
    """1. A check of need against free bytes passes, but warns about uneven fill. 2. The failure is laid to one storage
    target or a quota, not to the saver. 3. What was written is not resumable. 4. The local volume gives no warning."""
    log = (case(25) / "save.log").read_text()
    needed, written = (int(text) * 10**9 for text in re.findall(r"(\d+) GB", log))
    striped, local = volumes()["/fsx"], volumes()["/local"]
    assert [problem.token for problem in before_save(striped, needed)] == ["uneven-fill"]
    assert before_save(local, needed) == ()
    shortage = explain(striped, needed_bytes=needed, written_bytes=written)
    assert shortage.suspect == "storage-target-or-quota"
    assert shortage.next_command == "lfs df -h /fsx"
    assert not shortage.resumable
    assert "27000000000 of 53000000000 bytes were written and are no checkpoint" in shortage.sentence


def test_weights_of_another_tag() -> None:
    """1. Asked for `earlier`, the loader returns its path and the weights of `later`. 2. That is an error that names
    both. 3. An explicit request consults no pointer, so it works without one."""
    told = json.loads((case(27) / "case.json").read_text())
    digests = {tag: told["weights_digest"][tag] for tag in told["root"]["tags"]}
    problem = identify(digests, told["call"]["tag"], told["weights_digest"]["loaded"])
    assert problem is not None
    assert problem.token == "weights-of-another-checkpoint"
    assert problem.files == ("later",)
    assert identify(digests, "later", "9c0e") is None
    assert select([100, 200], {100: ()}, requested=100) == Resume(step=100, sentence="")
    refused = select([100, 200], {}, requested=150)
    assert isinstance(refused, Refused)
    assert refused.problem.token == "no-such-checkpoint"


def test_halves_on_two_hosts() -> None:
    """1. Each host holds half of the shards, one of them the metadata. 2. Together they hold all of it: nothing is
    corrupt, the path is not shared, gather and resume."""
    held = {}
    for host in (0, 1):
        _, _, names = (case(29) / f"node{host}_ls.txt").read_text().partition(": ")
        held[f"gpu-00{host + 1}"] = names.split()
    words = [line.split() for line in (case(29) / "mounts.txt").read_text().splitlines()]
    mounts = [Mount(host=host, path=path, kind=kind, source=source) for host, path, kind, source in words]
    expected = [".metadata", *(f"__{rank}_0.distcp" for rank in range(16))]
    problems = judge_hosts(held, expected, mounts)
    assert [problem.token for problem in problems] == ["not-shared"]
    assert problems[0].numbers == {"hosts": 2, "partial": 2, "files": 17}
    assert "/ckpt is ext4 on each host" in problems[0].sentence
    assert "nothing is corrupt" in problems[0].sentence
    assert judge_hosts(held, [*expected, "__16_0.distcp"])[0].token == "missing-file"
    assert judge_hosts({"a": expected, "b": expected}, expected) == ()


def test_six_warnings_and_no_save() -> None:
    """Six preemptions with a grace of 300 s (one of 2 s): no save, 2,680 steps lost, and which phase swallowed it."""
    rows = [line.split(",") for line in (case(60) / "preempt.csv").read_text().splitlines()[1:]]
    told = report(
        [
            Preemption(
                number=int(number),
                phase=phase,
                grace=seconds(int(kill) - int(signal)),
                last_checkpoint_step=int(last),
                step_at_kill=int(at),
            )
            for number, phase, signal, kill, last, at in rows
        ]
    )
    assert (told.saves, told.preemptions) == (0, 6)
    assert told.lost_steps == (40, 730, 410, 590, 40, 870)
    assert told.lost_steps_total == 2680
    assert told.swallowed == {"eval": 3, "warmup": 2}
    assert told.killed_at_once == (4,)
    assert len(told.advice) == 2


def ids(name: str) -> list[int]:
    lines = (case(81) / name).read_text().splitlines()
    return [int(word) for line in lines if not line.startswith("#") for word in line.split()]


def test_a_resume_in_another_order() -> None:
    """20 samples before the stop and 44 after it make 64, and yet 15 were seen twice and 15 never."""
    before, after = ids("before.txt"), ids("after.txt")
    assert len(before) + len(after) == 64
    audit = audit_epoch(before + after, 64)
    assert (audit.seen_twice, audit.never_seen, audit.foreign) == (15, 15, 0)
    assert [problem.token for problem in audit.problems] == ["order-changed"]
    assert audit_epoch(range(64), 64).problems == ()


def test_four_hosts_become_eight() -> None:
    """1. The position is 5,120,000 global samples with any number of ranks and any batch. 2. The share of a rank
    halves. 3. Another batch size is warned about, because step 5000 then no longer means that many samples."""
    state = data(83, "state.json")
    position = Position(samples=state["samples_in_epoch"], global_batch=state["global_batch"], step=state["step"])
    told = [
        proceed(position, config["world"], config["global_batch"])
        for config in (data(83, "resume.json"), data(83, "resume2.json"))
    ]
    assert [each.first_sample for each in told] == [5_120_000, 5_120_000]
    assert (told[0].share_max, told[0].share_min) == (16, 16)
    assert proceed(position, state["world"], state["global_batch"]).share_max == 32
    assert told[0].warnings == ()
    assert [warning.token for warning in told[1].warnings] == ["batch-changed"]
    assert "step 5000" in told[1].warnings[0].sentence
