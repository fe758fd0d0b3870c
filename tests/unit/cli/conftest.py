"""A server of canned answers with the small world in it, and a command line that talks to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.api import TOKEN, FakeApi, world
from tests.fakes.command import CommandLine
from tests.fakes.maintenance import maintenance


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        world(api)
        maintenance(api)
        yield api


@pytest.fixture
def line(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, api.url, TOKEN)
