"""Where time went, as commands tell it: records, pages, and what they say when there is nothing."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from tests.fakes.api import ACCOUNT, AT, FakeApi, detail, incident, job, life
from tests.fakes.command import CommandLine

from trainmaster.cli.account_page import job_page
from trainmaster.cli.job_account import ranks_text
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.base.time import DAY, Instant

SVG = "{http://www.w3.org/2000/svg}"


def picture_of(page: str) -> ET.Element:
    """The first picture of a page, which is whole XML by itself."""
    found = re.search(r"<svg xmlns.*?</svg>", page, re.DOTALL)
    assert found is not None
    return ET.fromstring(found.group())


def test_incidents_are_records(line: CommandLine) -> None:
    """1. As a table: cause, host, ranks, cost. 2. As JSON: all of the record, and what seconds are multiplied with.
    3. A job that nothing interrupted says so."""
    status, out, _ = line.run("job", "incidents", "llama")
    assert status == 0
    assert re.search(r"unplanned +host-lost +gpu-4 +0-7 +2\.5 +34 +40\.0 GPU-s +host gpu-4 was lost", out)
    status, out, _ = line.run("job", "incidents", "llama", "-o", "json")
    told = json.loads(out)
    assert (told["schema"], told["gpus"], told["unit"]) == ("trainmaster.incident/v1", 16, "GPU")
    assert told["items"][0]["cause"]["token"] == "host-lost"
    assert told["items"][0]["seconds_by_phase"] == {"detect": 0.1, "restore": 2.4}
    status, out, err = line.run("job", "incidents", "eval")
    assert (status, out) == (0, "")
    assert err == "nothing has interrupted eval (job-3)\n"


def test_the_page_of_a_job(line: CommandLine) -> None:
    """1. The page is written, and what is asked for in JSON is the account. 2. It has the picture: the phases of the
    job as boxes in their order, a mark for the incident, a lane for each host that came or went. 3. It needs nothing
    else. 4. A place that can't be written to is an error with a way out."""
    out = line.home / "llama.html"
    status, told, err = line.run("job", "report", "llama", "--out", str(out), "-o", "json")
    assert (status, err) == (0, "")
    assert json.loads(told)["goodput"] == ACCOUNT.goodput
    page = out.read_text()
    picture = picture_of(page)
    titles = [title.text for title in picture.iter(f"{SVG}title")]
    assert [str(title).partition(":")[0] for title in titles[:5]] == [
        "epoch 1, launch", "epoch 1, training", "epoch 1, detect", "epoch 1, restore", "epoch 1, training",
    ]  # fmt: skip
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"gpu-2", "gpu-4", "host-lost gpu-4"} <= set(words)
    assert "95.0% of 2 min was productive" in page
    assert "src=" not in page
    assert "href=" not in page
    status, _, err = line.run("job", "report", "llama", "--out", str(line.home / "no" / "where.html"))
    assert status == 1
    assert "can't be written" in err


def test_names_in_a_page_are_text(line: CommandLine) -> None:
    """1. An error message holds a tag. 2. The page shows it as it is."""
    odd = because(Token.WORKER_EXITED, "rank 0 failed: <script>alert(1)</script>")
    told = detail(job(1, "llama"), account=ACCOUNT.but(incidents=(incident(cause=odd),)))
    page = job_page(told, life(told.job))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_the_picture_of_a_year() -> None:
    """1. A job of a year with a hundred incidents. 2. The axis has a mark every month or so, in days, and only the
    worst incidents are marked."""
    told = detail(job(1, "llama"))
    start = AT - 365 * DAY
    many = [
        incident(last_step_at=Instant(start + place * DAY), hosts=(HostId(f"gpu-{place}"),), lost_s=float(place))
        for place in range(100)
    ]
    told = told.but(account=ACCOUNT.but(incidents=tuple(many)))
    found = life(told.job)
    words = [text.text or "" for text in picture_of(job_page(told, found.but(start=Instant(start)))).iter(f"{SVG}text")]
    days = [word for word in words if re.fullmatch(r"\d+ d", word)]
    assert 2 <= len(days) <= 60
    assert [word for word in words if word.startswith("host-lost")] == [f"host-lost gpu-{n}" for n in range(92, 100)]


def test_the_fleet(line: CommandLine) -> None:
    """1. The sum in words, then causes, then jobs. 2. The same as a page, and as JSON."""
    status, out, _ = line.run("report")
    assert status == 0
    assert "goodput (ETTR) 95.0% of 1,920.0 GPU-s in 4 jobs" in out
    assert re.search(r"host-lost +1 +40\.0 GPU-s +restore, detect", out)
    page = line.home / "fleet.html"
    status, out, err = line.run("report", "--out", str(page), "-o", "json")
    assert (status, err) == (0, f"wrote {page}\n")
    assert json.loads(out)["account"]["interruptions"]["unplanned"] == 1
    assert "host-lost" in page.read_text()


def test_the_fleet_without_a_job(api: FakeApi, line: CommandLine) -> None:
    """1. No job has run. 2. That is what is said, and no figure is made up."""
    nothing = json.loads(api.answers["GET", "/v1/account"](None)[1])  # type: ignore[arg-type]
    nothing["account"].update(jobs=[], causes=[], gpu_s=0.0, productive_gpu_s=0.0, goodput=0.0, lost_each_s=None)
    api.answers["GET", "/v1/account"] = lambda _: (200, json.dumps(nothing).encode())
    assert line.run("report")[1] == "no job has spent any time yet\n"


@pytest.mark.parametrize(
    ("ranks", "text"), [((), ""), ((3,), "3"), ((8, 9, 10), "8-10"), ((5, 0, 1), "0-1,5"), ((2, 4), "2,4")]
)
def test_ranks_fold(ranks: tuple[int, ...], text: str) -> None:
    assert ranks_text(ranks) == text
