"""What people met in the field: captures from tickets, each with the answer that settled it (`expected.md`).

Every case is also judged on other inputs of its kind (`mutate.py`), so that no answer is that of a remembered file.
"""

from pathlib import Path

import pytest

from tests.diagnosis.mutate import (
    Files,
    permutation,
    permuted_dump,
    permuted_log,
    permuted_table,
    shuffled,
    shuffled_lines,
)
from trainmaster.core.diagnosis.answer import Diagnosis, Kind
from trainmaster.core.diagnosis.judge import judge
from trainmaster.core.diagnosis.read import read_all

HERE = Path(__file__).parent / "field"
SHARED = Path(__file__).parents[1] / "cases"
SEEDS = range(6)


def files(number: str, *, but: tuple[str, ...] = ()) -> Files:
    directory = next(path for root in (HERE, SHARED) for path in root.glob(f"{number}-*"))
    chosen = sorted(path for path in directory.iterdir() if path.name not in ("expected.md", *but))
    return [(path.name, path.read_text("utf-8")) for path in chosen]


def judged(found: Files) -> Diagnosis:
    return judge(read_all(found))


def said(found: Diagnosis) -> str:
    return " ".join((found.summary, found.first_cause, *found.details, *found.next_evidence, *found.advice))


def test_01_one_rank_behind() -> None:
    """1. Three ranks time out in an all-gather, the fourth never entered it. 2. It is missing, the loud ones wait, no
    host is to blame, and the data path is to be looked at."""
    found = judged(files("01"))
    assert (found.kind, found.missing_ranks, found.waiting_ranks) == (Kind.DESYNC, (1,), (0, 2, 3))
    assert (found.ahead_ranks, found.hosts, found.confidence) == ((), (), "high")
    assert found.collective == "all_gather_base 21937"
    assert "stack" in said(found)
    assert "same number of steps" in said(found)
    assert "21937" in found.first_cause


@pytest.mark.parametrize("seed", SEEDS)
def test_01_mutated(seed: int) -> None:
    """1. Other numbers for the ranks, lines in another order, without the job's file. 2. The same answer."""
    new = permutation(4, seed)
    found = judged(
        [(name, shuffled_lines(permuted_log(text, new), seed)) for name, text in files("01", but=("job.json",))]
    )
    assert found.missing_ranks == (new(1),)
    assert found.waiting_ranks == tuple(sorted(new(rank) for rank in (0, 2, 3)))
    assert found.hosts == ()


def test_01_the_silent_rank_said_nothing() -> None:
    """1. The line of the missing rank is not there. 2. It is still the missing one, with less confidence."""
    kept = [(name, "\n".join(line for line in text.split("\n") if "[rank1]" not in line)) for name, text in files("01")]
    found = judged(kept)
    assert (found.kind, found.missing_ranks, found.unseen_ranks) == (Kind.DESYNC, (1,), (1,))
    assert found.confidence == "medium"
    assert "dumps or logs of rank 1" in said(found)


def test_03_the_printed_ranks_are_ahead() -> None:
    """1. RAS prints the two ranks of the smaller group. 2. They are ahead; the many that are not printed are late; one
    snapshot proves no hang."""
    found = judged(files("03"))
    late = tuple(rank for rank in range(32) if rank not in (12, 13))
    assert (found.ahead_ranks, found.missing_ranks, found.hosts) == ((12, 13), late, ())
    assert found.confidence == "low"
    assert "second poll" in found.next_evidence[0]
    assert "10.0.0.124" not in said(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_03_mutated(seed: int) -> None:
    new = permutation(32, seed)
    name, text = files("03")[0]
    text = text.replace("Rank 12 ", f"Rank {new(12)} ").replace("Rank 13 ", f"Rank {new(13)} ")
    found = judged([(name, text.replace("640", "7").replace("641", "8"))])
    assert found.ahead_ranks == tuple(sorted((new(12), new(13))))
    assert set(found.missing_ranks) == set(range(32)) - set(found.ahead_ranks)


def test_03_the_smaller_group_is_late() -> None:
    """1. The same report with the counts exchanged. 2. Now the printed ranks are the late ones."""
    name, text = files("03")[0]
    text = text.replace("30 ranks have launched up to operation 640", "30 ranks have launched up to operation 641", 1)
    text = text.replace(
        "2 ranks have launched up to operation 641\n  Rank", "2 ranks have launched up to operation 640\n  Rank"
    )
    found = judged([(name, text)])
    assert (found.missing_ranks, found.ahead_ranks, len(found.waiting_ranks)) == ((12, 13), (), 30)


def test_03_twice() -> None:
    """1. A second report with the same counts: it hangs. 2. With other counts: it goes on."""
    name, text = files("03")[0]
    assert judged([(name, text), ("again.txt", text)]).confidence == "medium"
    later = text.replace("641", "643").replace("640", "642")
    assert judged([(name, text), ("again.txt", later)]).kind is Kind.NONE


def test_05_stalled_before_it_enqueued() -> None:
    """1. One of two ranks is a collective behind. 2. It is missing, stalled before the collective and not inside."""
    found = judged(files("05"))
    assert (found.kind, found.missing_ranks, found.waiting_ranks, found.hosts) == (Kind.DESYNC, (0,), (1,), ())
    assert found.collective == "all_gather_base 288686"
    assert "before it enqueued" in said(found)
    assert "network" not in said(found)
    assert found.confidence == "medium"


@pytest.mark.parametrize("seed", SEEDS)
def test_05_mutated(seed: int) -> None:
    new = permutation(2, seed)
    found = judged(shuffled([(name, permuted_dump(text, new)) for name, text in files("05")], seed))
    assert (found.missing_ranks, found.waiting_ranks) == ((new(0),), (new(1),))


def test_05_without_a_dump() -> None:
    """1. The dump of the missing rank is not there. 2. It is named as the one of whom nothing is known."""
    found = judged(files("05", but=("fr_rank_0.json",)))
    assert (found.missing_ranks, found.unseen_ranks, found.confidence) == ((0,), (0,), "medium")
    assert "no dump and no line of rank 0" in said(found)


def test_05_only_the_dump_of_the_silent_one() -> None:
    """1. Only the dump of the rank that is behind is there, and it shows nothing open. 2. Nothing is claimed."""
    found = judged(files("05", but=("fr_rank_1.json",)))
    assert found.kind is Kind.UNDETERMINED
    assert found.missing_ranks == ()


def test_07_uneven_shards() -> None:
    """1. All ranks are in an all-to-all with sizes that don't agree. 2. Who differs is told, with the rows."""
    found = judged(files("07"))
    assert (found.kind, found.differing_ranks, found.hosts) == (Kind.DESYNC, (6, 7), ())
    assert found.collective == "all_to_all 42"
    assert "[3,3,3,3,3,3,0,0]" in said(found)
    assert "18 rows in chunks of 3 fill 6 of 8 ranks" in said(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_07_mutated(seed: int) -> None:
    """1. Ranks permuted, files in another order, the dump of one rank that is like the others left out."""
    new = permutation(8, seed)
    kept = files("07", but=(f"fr_rank_{seed}.json",))
    found = judged(shuffled([(name, permuted_dump(text, new)) for name, text in kept], seed))
    assert found.kind is Kind.DESYNC
    assert found.differing_ranks == tuple(sorted((new(6), new(7))))


def test_09_slow_save() -> None:
    """1. All but rank 0 wait in a one-element all-reduce behind a save. 2. It is no hang: rank 0 still writes."""
    found = judged(files("09"))
    assert (found.kind, found.missing_ranks, found.slow_ranks, found.hosts) == (Kind.SLOW_PHASE, (0,), (0,), ())
    assert found.waiting_ranks == tuple(range(1, 32))
    for part in ("2160", "1320", "840", "600", "save"):
        assert part in said(found), part
    assert "network" not in said(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_09_mutated(seed: int) -> None:
    new = permutation(32, seed)
    found = judged(
        [
            (name, shuffled_lines(permuted_table(text, new), seed, header=True) if name.endswith(".csv") else text)
            for name, text in shuffled(files("09"), seed)
        ]
    )
    assert (found.kind, found.slow_ranks) == (Kind.SLOW_PHASE, (new(0),))


def test_09_without_times() -> None:
    """1. Only the watchdog's lines. 2. Still a slow save, of whom is not known."""
    found = judged(files("09", but=("save_times.csv",)))
    assert (found.kind, found.missing_ranks, found.hosts, found.confidence) == (Kind.SLOW_PHASE, (), (), "medium")


def test_12_the_host_of_the_store() -> None:
    """1. A host can't reach the store. 2. The host that has the store is gone; who misses it stays usable."""
    found = judged(files("12"))
    assert (found.kind, found.hosts, found.cleared) == (Kind.HOST_LOST, ("gpu-001",), ("gpu-002",))
    assert "endpoint on another host" in said(found)
    assert "survivable (1:2 hosts)" in said(found)


@pytest.mark.parametrize(("store", "victim"), [("node-17", "node-4"), ("a-01", "b-02")])
def test_12_mutated(store: str, victim: str) -> None:
    renamed = [
        (name.replace("gpu-002", victim), text.replace("gpu-001", store).replace("gpu-002", victim))
        for name, text in files("12")
    ]
    assert judged(renamed).hosts == (store,)
    assert judged(renamed[::-1]).cleared == (victim,)


def test_12_without_the_command() -> None:
    """1. Nobody says where the store lives. 2. No host is blamed."""
    found = judged(files("12", but=("launch.txt",)))
    assert (found.kind, found.hosts, found.confidence) == (Kind.HOST_LOST, (), "low")


def test_14_the_same_crash_at_every_start() -> None:
    found = judged(files("14"))
    assert (found.kind, found.hosts, found.confidence) == (Kind.LAUNCH_FAILURE, (), "high")
    assert "ModuleNotFoundError: No module named 'flash_attn'" in found.first_cause
    assert "stop" in found.advice[0]
    assert "restart" not in said(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_14_mutated(seed: int) -> None:
    found = judged([(name, shuffled_lines(text, seed).replace("flash_attn", f"m{seed}")) for name, text in files("14")])
    assert (found.kind, found.hosts) == (Kind.LAUNCH_FAILURE, ())


def test_14_always_the_same_host() -> None:
    """1. The same crashes, all on one host, and one attempt elsewhere that went well. 2. It follows the host."""
    name, text = files("14")[0]
    text = "\n".join(line.replace(line[line.index("host=") :].split()[0], "host=gpu-003") for line in text.splitlines())
    fine = '\nattempt=5 start=350 exit_code=0 uptime_s=9000 host=gpu-001 error=""\n'
    found = judged([(name, text + fine)])
    assert (found.kind, found.hosts) == (Kind.HARDWARE, ("gpu-003",))


def test_16_all_failed_the_check() -> None:
    found = judged(files("16"))
    assert (found.kind, found.hosts) == (Kind.LAUNCH_FAILURE, ())
    assert "4/4" in said(found)
    assert "stop early" in said(found)


def test_16_one_failed_the_check() -> None:
    """1. Three of the four passed. 2. Then it is the one host."""
    found = judged([(name, text.replace("FAILED", "RUNNING", 3)) for name, text in files("16")])
    assert (found.kind, found.hosts) == (Kind.HARDWARE, ("gpu-004",))


def test_18_a_neighbour_has_the_port() -> None:
    found = judged(files("18"))
    assert (found.kind, found.hosts) == (Kind.LAUNCH_FAILURE, ())
    assert "port 29400" in found.summary
    assert "41022" in said(found)
    assert "38801" in said(found)
    assert "free port" in said(found)
    assert "52210" not in said(found)


def test_75_a_barrier_makes_all_equal() -> None:
    """1. A slow backward pass behind an all-reduce. 2. No rank can be named, and nothing is called well."""
    found = judged(files("75", but=("run_b.csv",)))
    assert (found.kind, found.slow_ranks, found.hosts, found.confidence) == (Kind.UNDETERMINED, (), (), "low")
    assert "measure before the collective" in said(found)
    assert "0.9" in found.summary


def test_75_a_local_measure_names_the_rank() -> None:
    found = judged(files("75", but=("run_a.csv",)))
    assert (found.kind, found.slow_ranks) == (Kind.STRAGGLER, (2,))
    assert "input" in found.first_cause
    assert "199.7" in found.first_cause


@pytest.mark.parametrize("seed", SEEDS)
def test_75_mutated(seed: int) -> None:
    new = permutation(4, seed)
    mutated = [
        (name, shuffled_lines(permuted_table(text, new), seed, header=True) if name.endswith(".csv") else text)
        for name, text in files("75")
    ]
    assert judged([each for each in mutated if each[0] != "run_a.csv"]).slow_ranks == (new(2),)
    assert judged([each for each in mutated if each[0] != "run_b.csv"]).kind is Kind.UNDETERMINED
    assert judged(mutated).slow_ranks == (new(2),)


def test_77_two_rounds_of_pairs() -> None:
    found = judged(files("77"))
    assert (found.kind, found.slow_ranks, found.hosts, found.cleared) == (Kind.STRAGGLER, (3,), ("3",), ("2", "4"))


@pytest.mark.parametrize("seed", SEEDS)
def test_77_mutated(seed: int) -> None:
    new = permutation(6, seed)

    def renamed(text: str) -> str:
        head, *rows = text.strip().split("\n")
        pairs = [row.split('"') for row in rows]
        ranks = [",".join(str(new(int(each))) for each in pair.split(",")) for _, pair, _ in pairs]
        return "\n".join([head, *(f'"{names}"{row[2]}' for names, row in zip(ranks, pairs, strict=True))]) + "\n"

    mutated = shuffled([(name, shuffled_lines(renamed(text), seed, header=True)) for name, text in files("77")], seed)
    assert judged(mutated).slow_ranks == (new(3),)
    assert set(judged(mutated).cleared) == {str(new(2)), str(new(4))}


def test_77_one_round_is_not_enough() -> None:
    found = judged(files("77", but=("round2.csv",)))
    assert (found.kind, found.hosts) == (Kind.UNDETERMINED, ())
    assert "2, 3" in found.summary


def test_79_one_host_fails_everything() -> None:
    found = judged(files("79"))
    assert (found.kind, found.hosts, found.confidence) == (Kind.HARDWARE, ("f10202",), "high")
    assert "ask for gpu-a100" in said(found)
    assert "not gpu-l40s" in said(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_79_mutated(seed: int) -> None:
    mutated = [
        (name, shuffled_lines(text, seed, header=True).replace("f10202", f"n{seed}") if name == "runs.csv" else text)
        for name, text in files("79")
    ]
    assert judged(mutated).hosts == (f"n{seed}",)


def test_79_programs_that_fail_everywhere() -> None:
    """1. The same programs fail on all hosts. 2. No host is to blame."""
    name, text = next(each for each in files("79") if each[0] == "runs.csv")
    found = judged([(name, text.replace(",0,0", ",40,170"))])
    assert (found.kind, found.hosts) == (Kind.UNDETERMINED, ())


def test_77_most_pairs_are_slow() -> None:
    """1. Two slow hosts of six in two of three pairs, each with another partner then. 2. Both are found."""
    rounds = [
        ("round1.csv", 'pair,seconds\n"0,1",12.1\n"2,3",36.4\n"4,5",37.0\n'),
        ("round2.csv", 'pair,seconds\n"2,0",12.2\n"3,1",36.1\n"4,5",36.8\n'),
        ("round3.csv", 'pair,seconds\n"4,0",12.0\n"5,2",36.0\n"3,1",36.1\n'),
    ]
    found = judged(rounds)
    assert (found.slow_ranks, found.kind) == ((3, 5), Kind.STRAGGLER)
