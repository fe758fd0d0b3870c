"""Burst files: a store, a job that saves, readers, and how the store is shared (`scenarios/exabyte-burst.toml`).

Units are those of people: MB and GB are decimal, MiB is not. What is left out is as in `twin/burst.py`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trainmaster.core.storage.classes import MEBIBYTE, MILLION, Policy, problems
from trainmaster.live.tomlfile import Document, Table
from trainmaster.twin.burst import BurstScenario

SCHEMA: Final = "trainmaster.burst/v1"
_GIGABYTE: Final = 1_000 * MILLION


def load(file: Path, changes: Sequence[str] = ()) -> BurstScenario:
    """Reads a burst file; `changes` (KEY=VALUE) stand in place of what it says. Raises
    `trainmaster.live.tomlfile.FileError` with all problems."""
    document = Document(file, "burst file")
    document.change(changes)
    root = document.root
    document.check_schema(SCHEMA)
    usual = BurstScenario(name="", policy=Policy())
    store, save, data, shares = (root.table(name) for name in ("store", "save", "data", "admission"))
    found = usual.but(
        name=root.text("name", may_be_empty=False),
        seed=root.integer("seed", 1, 0, 2**63),
        servers=store.integer("servers", usual.servers, 1, 1_000_000),
        sustained_bytes_s=_scaled(store, "sustained_gb_s", usual.sustained_bytes_s, _GIGABYTE, 0.001, 1e6),
        peak_bytes_s=_scaled(store, "peak_gb_s", usual.peak_bytes_s, _GIGABYTE, 0.001, 1e6),
        buffer_bytes=_scaled(store, "buffer_mb", usual.buffer_bytes, MILLION, 0.0, 1e6),
        ranks=save.integer("ranks", usual.ranks, 1, 1_000_000),
        smallest_bytes=_scaled(save, "smallest_mb", usual.smallest_bytes, MILLION, 0.001, 1e6),
        largest_bytes=_scaled(save, "largest_mb", usual.largest_bytes, MILLION, 0.001, 1e6),
        link_bytes_s=_scaled(save, "link_gb_s", usual.link_bytes_s, _GIGABYTE, 0.001, 1e3),
        ahead=save.integer("pieces_ahead", usual.ahead, 1, 10_000),
        piece_bytes=MEBIBYTE * save.integer("piece_mib", usual.piece_bytes // MEBIBYTE, 1, 1024),
        readers=data.integer("readers", usual.readers, 1, 1_000_000),
        read_bytes=MEBIBYTE * data.integer("read_mib", usual.read_bytes // MEBIBYTE, 1, 1024),
        reads_ahead=data.integer("reads_ahead", usual.reads_ahead, 1, 10_000),
        data_bytes_s=_scaled(data, "gb_s", usual.data_bytes_s, _GIGABYTE, 0.0, 1e6),
    )
    policy = Policy(
        checkpoint_percent=shares.integer("checkpoint_percent", 70, 0, 100),
        data_percent=shares.integer("data_percent", 25, 0, 100),
        code_percent=shares.integer("code_percent", 5, 0, 100),
        window_bytes=_scaled(shares, "window_gb", 10 * found.servers * MEBIBYTE, _GIGABYTE, 0.001, 1e6),
        quantum_bytes=max(found.piece_bytes, found.read_bytes),
    )
    for table in (store, save, data, shares, root):
        table.finish()
    _check(document, found, policy)
    document.finish()
    return found.but(policy=policy)


def _scaled(table: Table, key: str, usual: int, unit: int, low: float, high: float) -> int:
    return round(table.number(key, usual / unit, low, high) * unit)


def _check(document: Document, found: BurstScenario, policy: Policy) -> None:
    for problem in problems(policy):
        document.note(("admission",), problem.sentence, "correct the shares or the window")
    if found.peak_bytes_s < found.sustained_bytes_s:
        document.note(("store", "peak_gb_s"), "a peak lies not below what is sustained", "raise it")
    if found.largest_bytes < found.smallest_bytes:
        document.note(("save", "largest_mb"), "it is smaller than the smallest", "raise it")
    if found.data_bytes_s >= found.sustained_bytes_s:
        document.note(("data", "gb_s"), "readers want more than the store sustains", "lower it")
