"""Transcripts of the nouns that talk to a server: the scripts in `server/`, against a small world that stands still."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.api import AT, TOKEN, FakeApi, item, report, world
from tests.fakes.health import GPU, health
from tests.fakes.maintenance import maintenance
from tests.transcripts.test_transcripts import replay

from trainmaster.core.base.ids import HostId, JobId, RmaId
from trainmaster.live.server.health_resources import RmaReport
from trainmaster.live.server.maintenance_resources import MaintenanceReport
from trainmaster.live.server.resources import ChangeReport, SubmitReport

SCRIPTS = Path(__file__).parent / "server"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that the user's config file names, and a clock that stands."""
    monkeypatch.setattr(time, "time_ns", lambda: AT * 1000)
    with FakeApi() as api:
        world(api)
        maintenance(api)
        health(api)
        api.answer(
            "POST", "/v1/health/acknowledge", report(item("gpu-5", what=f"bad: {GPU}, fell off the bus"), index=901)
        )
        released = item("gpu-5", what="closes case-7; returns through verification")
        api.answer("POST", "/v1/health/release", report(released, item("gpu-1", False, "nothing to close"), index=901))
        steered = MaintenanceReport(index=901, dry_run=False, changed=True, sentence="health acts on gpu: 1 host waits")
        api.answer("POST", "/v1/health/pools/gpu/mode", steered)
        api.answer("POST", "/v1/health/pools/gpu/breaker", steered.but(sentence="health takes no further host out"))
        sent = RmaReport(index=901, dry_run=False, rma=RmaId("rma-4"), sentence=f"rma-4: {GPU} of gpu-5 goes back")
        api.answer("POST", "/v1/rmas", sent)
        api.answer("POST", "/v1/rmas/rma-3/close", sent.but(rma=RmaId("rma-3"), sentence="rma-3 is replaced"))
        moves = item("gpu-1", what="llama (job-1) runs on it and moves to gpu-3 after a checkpoint", job=JobId("job-1"))
        api.answer("POST", "/v1/hosts/drain", report(moves, item("gpu-8"), index=901))
        held = "held by policy:health: flaky; only the owner lifts a hold"
        back = [item(f"gpu-{number}", what="returns through verification") for number in range(121, 125)]
        api.answer("POST", "/v1/hosts/resume", report(*back, item("gpu-125", False, held, refused=True), index=901))
        api.answer(
            "POST", "/v1/jobs/job-1/cancel", ChangeReport(index=901, dry_run=True, sentence="llama is cancelled")
        )
        submitted = SubmitReport(
            index=901, dry_run=False, job=JobId("job-5"), would_start_on=(HostId("gpu-8"),), waits=None
        )
        api.answer("POST", "/v1/jobs", submitted)
        config = tmp_path / ".config" / "trainmaster"
        config.mkdir(parents=True)
        (tmp_path / "token").write_text(TOKEN)
        (config / "config.toml").write_text(f'server = "{api.url}"\ntoken_file = "{tmp_path}/token"\n')
        yield api.url


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(script: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = script.read_text()
    now = replay(stored, tmp_path, monkeypatch).replace(url, "SERVER")
    if os.environ.get("TRANSCRIPTS") == "accept":
        script.write_text(now)
    else:
        assert now == stored
