"""Who gets hosts first, and what those who wait are told."""

from tests.unit.fixtures import Stage, host_spec, job_spec, stage

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.commands import check_requeue, check_submit, find_job
from trainmaster.core.effects import ReleaseAttempt, StopWorkers
from trainmaster.core.scheduling.job import JobState
from trainmaster.core.scheduling.request import CheckpointPolicy


def test_priority_then_arrival() -> None:
    """1. No host is ready; four jobs come. 2. The queue is by priority, then by arrival."""
    play = stage(1, ready=False)
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        play.submit(job_spec(name, hosts=1, priority=priority))
    assert [play.job(job).spec.name for job in play.engine.state.queue] == ["b", "d", "a", "c"]
    play.ready("h1")
    assert play.job("job-2").state is JobState.ACTIVE
    assert play.engine.state.queue == ["job-4", "job-1", "job-3"]


def test_the_head_blocks_with_a_reason() -> None:
    """1. Three hosts, a job of two runs. 2. A job of two waits and says why. 3. A job of one behind it would fit and
    waits all the same: large gangs are not starved. 4. The first ends; both get their hosts in order."""
    play = stage(3)
    first = play.running(job_spec("first", hosts=2))
    wide, small = play.submit(job_spec("wide", hosts=2)), play.submit(job_spec("small", hosts=1))
    assert wide.reason is not None
    assert wide.reason.token is Token.NOT_ENOUGH_HOSTS
    assert wide.reason.numbers == {"wanted": 2, "free": 1, "short": 1}
    assert small.state is JobState.QUEUED
    play.all_exit(first, "finished")
    play.settle(ReleaseAttempt)
    assert (wide.state, small.state) == (JobState.ACTIVE, JobState.ACTIVE)


def test_cancelling_the_head_lets_the_next_go() -> None:
    play = stage(2)
    play.submit(job_spec("too-wide", hosts=3))
    small = play.submit(job_spec("small", hosts=1))
    assert small.state is JobState.QUEUED
    play.cancel("job-1")
    assert small.state is JobState.ACTIVE


def test_a_gang_stays_within_its_cluster() -> None:
    """1. Two clusters of two hosts. 2. A job of three never fits and is refused before it is queued, with numbers."""
    play = Stage(*(host_spec(f"{cluster}{n}", cluster) for cluster in ("a", "b") for n in (1, 2)))
    refused = check_submit(play.engine.state, job_spec(hosts=3))
    assert refused is not None
    assert refused.token is Token.NEVER_FITS
    assert refused.numbers == {"wanted": 3, "largest": 2}
    assert check_submit(play.engine.state, job_spec(hosts=2)) is None


def test_a_fleet_without_hosts_fits_nothing() -> None:
    refused = check_submit(Stage().engine.state, job_spec(hosts=1))
    assert refused is not None
    assert refused.numbers["largest"] == 0


def test_a_directory_of_checkpoints_is_one_jobs_at_a_time() -> None:
    """1. A job is queued: its directory is taken, also in other words. 2. Jobs without one are not in each other's way.
    3. It is cancelled: the directory is free."""
    play = stage(1, ready=False)
    mine = job_spec("llama", hosts=1, checkpoint=CheckpointPolicy(directory="/shared/c"))
    play.submit(mine)
    play.submit(job_spec("plain", hosts=1))
    for directory, taken in (("/shared/c", True), ("/shared//x/../c/", True), ("/shared/c2", False), ("", False)):
        refused = check_submit(
            play.engine.state, mine.but(name="other", checkpoint=CheckpointPolicy(directory=directory))
        )
        assert (refused is not None and refused.token is Token.DIRECTORY_TAKEN) == taken, directory
    play.cancel("job-1")
    assert check_submit(play.engine.state, mine.but(name="other")) is None


def test_a_name_is_taken_while_its_job_lives() -> None:
    """1. A job is queued: its name is taken. 2. It is cancelled: the name is free; the newest of a name is meant."""
    play = stage(1, ready=False)
    play.submit(job_spec("llama", hosts=1))
    refused = check_submit(play.engine.state, job_spec("llama", hosts=1))
    assert refused is not None
    assert refused.token is Token.NAME_TAKEN
    play.cancel("job-1")
    assert check_submit(play.engine.state, job_spec("llama", hosts=1)) is None
    play.submit(job_spec("llama", hosts=1))
    assert find_job(play.engine.state, "llama") is play.job("job-2")
    assert find_job(play.engine.state, "job-1") is play.job("job-1")
    taken = check_requeue(play.engine.state, play.job("job-1"))
    assert taken is not None
    assert taken.token is Token.NAME_TAKEN


def test_an_attempt_that_lost_a_member_comes_before_the_queue() -> None:
    """1. A running job loses a host, and no host is free. 2. Another job heads the queue. 3. A host returns: it goes to
    the gang that is one short, not to the queue."""
    play = stage(2)
    attempt = play.running(job_spec("wide", hosts=2))
    waiting = play.submit(job_spec("small", hosts=1, priority=1000))
    play.lose("h2")
    play.ready("h2")
    assert waiting.state is JobState.QUEUED
    assert attempt.members == ("h1", "h2")
    assert play.host("h2").allocation == attempt.id


def test_a_job_that_is_tried_again_keeps_its_place() -> None:
    """1. A job fails before its session and is queued again. 2. It stands before a job that came later."""
    play = stage(1)
    attempt = play.running(job_spec("first", hosts=1))
    play.submit(job_spec("second", hosts=1))
    play.requeue("job-1")
    play.all_exit(attempt, "yielded")
    assert play.engine.state.queue == ["job-1", "job-2"]
    play.settle(ReleaseAttempt, StopWorkers)
    assert play.job("job-1").state is JobState.ACTIVE


def test_free_hosts_are_counted_by_cluster() -> None:
    play = Stage(*(host_spec(f"{cluster}{n}", cluster) for cluster in ("a", "b") for n in (1, 2)))
    play.ready("a1", "b1", "b2")
    assert play.engine.free_hosts() == {"a": 1, "b": 2}
    assert play.engine.preview_placement(2, 0) == (HostId("b1"), HostId("b2"))
    play.disconnect("b1")
    assert play.engine.free_hosts() == {"a": 1, "b": 1}
