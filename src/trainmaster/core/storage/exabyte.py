"""The arithmetic of a large store: what a save of all ranks asks of it, what breaks in it, what it costs to mend.

Published are sizes and rates of the store (Llama 3: 240 PB, 7,500 servers, 2 TB/s, 7 TB/s in bursts), its code (nine
pieces of data and six of parity, Tectonic) and what a shard of its metadata answers (10,000 requests a second). The
rest is assumed, stands here by name, and may be replaced. `figures` renders the rows of `docs/design/exabyte.md`; a
test holds the page to them. Decimal units, as stores are sold in.
"""

import math
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.interval import exact_s, series_mttf_s
from trainmaster.core.checkpoint.rate import PUBLISHED_PER_THOUSAND_HOST_DAYS
from trainmaster.core.storage.classes import MEBIBYTE

_TERABYTE: Final = 10**12
_DAY_S: Final = 86_400


class Store(Value):
    """A store and a job that uses it."""

    capacity_bytes: int = 240_000 * _TERABYTE
    servers: int = 7_500
    sustained_bytes_s: int = 2 * _TERABYTE
    peak_bytes_s: int = 7 * _TERABYTE
    ranks: int = 16_384
    hosts: int = 2_048
    smallest_bytes: int = 10**6
    largest_bytes: int = 4 * 10**9
    data_pieces: int = 9
    parity_pieces: int = 6
    shard_requests_s: int = 10_000
    piece_bytes: int = 8 * MEBIBYTE
    """Assumed, as all below: what a client sends at once, and the block of the store's metadata."""
    listing_page: int = 1_000
    weights_bytes: int = 810 * 10**9
    """405 G parameters of two bytes: what every replica loads alike."""
    host_link_bytes_s: int = 50 * 10**9
    """400 Gb/s."""
    disks: int = 8
    """Of a server."""
    disk_failures_a_year: float = 0.01
    server_outages_per_thousand_days: float = 4.0
    lost_share: float = 0.1
    """Of the outages, those that take the disks along."""
    filled: float = 0.8
    repair_share: float = 0.1
    """Of the sustained rate."""


class Save(Value):
    """What one save of all ranks asks for."""

    size_bytes: int
    sustained_s: float
    peak_s: float
    pieces: int
    requests: int
    """To metadata: a name and an end for each rank, a block for each piece, one commit."""
    shards: int
    """That answer them in the time that the save takes at the peak rate."""
    interval_s: float
    """That wastes least, if ranks stand still for the whole save at the sustained rate."""
    rate_share: float
    """Of the sustained rate, over an interval."""
    day_bytes: int
    """On disk, with parity, if nothing is retired."""
    full_days: float
    """Until the store is as full as it may be."""


def typical_bytes(store: Store) -> int:
    """Of a save whose sizes lie evenly on a scale of logarithms: the mean of that law, times the ranks."""
    low, high = store.smallest_bytes, store.largest_bytes
    assert 0 < low <= high, store
    mean = low if low == high else (high - low) / math.log(high / low)
    return round(mean * store.ranks)


def save(store: Store, size_bytes: int) -> Save:
    assert size_bytes > 0, size_bytes
    sustained_s, peak_s = size_bytes / store.sustained_bytes_s, size_bytes / store.peak_bytes_s
    pieces = -(-size_bytes // store.piece_bytes)
    requests = 2 * store.ranks + pieces + 1
    interval_s = exact_s(sustained_s, series_mttf_s(store.hosts, PUBLISHED_PER_THOUSAND_HOST_DAYS))
    cycle_s = interval_s + sustained_s
    day_bytes = round(_DAY_S / cycle_s * size_bytes * overhead(store))
    return Save(
        size_bytes=size_bytes,
        sustained_s=sustained_s,
        peak_s=peak_s,
        pieces=pieces,
        requests=requests,
        shards=math.ceil(requests / peak_s / store.shard_requests_s),
        interval_s=interval_s,
        rate_share=sustained_s / cycle_s,
        day_bytes=day_bytes,
        full_days=store.capacity_bytes * store.filled / day_bytes,
    )


def overhead(store: Store) -> float:
    """Bytes on disk for a byte of data."""
    return (store.data_pieces + store.parity_pieces) / store.data_pieces


class Upkeep(Value):
    """What breaks in a day, and what mending takes."""

    outages: float
    lost_servers: float
    lost_disks: float
    server_repair_bytes: int
    """Read and written, for one lost server: every lost piece is made of as many as there is data."""
    server_repair_s: float
    """At the part of the rate that repairs may have."""
    traffic_share: float
    """Of the sustained rate, on average, for servers and disks."""
    busy_share: float
    """Of the time in which a repair is under way."""


def upkeep(store: Store) -> Upkeep:
    outages = store.servers * store.server_outages_per_thousand_days / 1000
    lost_servers = outages * store.lost_share
    lost_disks = store.servers * store.disks * store.disk_failures_a_year / 365
    held_bytes = store.capacity_bytes / store.servers * store.filled
    repair_bytes = held_bytes * (store.data_pieces + 1)
    rate = store.sustained_bytes_s * store.repair_share
    day_bytes = repair_bytes * (lost_servers + lost_disks / store.disks)
    return Upkeep(
        outages=outages,
        lost_servers=lost_servers,
        lost_disks=lost_disks,
        server_repair_bytes=round(repair_bytes),
        server_repair_s=repair_bytes / rate,
        traffic_share=day_bytes / (store.sustained_bytes_s * _DAY_S),
        busy_share=day_bytes / rate / _DAY_S,
    )


class Fan(Value):
    """How long it takes until all ranks have the same weights, in seconds."""

    by_rank_s: float
    by_host_s: float
    """Each host reads once, from the store."""
    fanned_s: float
    """Each byte is read once from the store, and hosts hand it on in a tree of two, piece by piece, both ways at once;
    the slowest of store, link and depth."""
    hops: int


def fan(store: Store) -> Fan:
    once_s = store.weights_bytes / store.sustained_bytes_s
    hops = math.ceil(math.log2(store.hosts + 1))
    link_s = 2 * store.weights_bytes / store.host_link_bytes_s  # to two others
    return Fan(
        by_rank_s=store.ranks * once_s,
        by_host_s=store.hosts * once_s,
        fanned_s=max(once_s, link_s) + hops * 2 * store.piece_bytes / store.host_link_bytes_s,
        hops=hops,
    )


def figures(store: Store) -> tuple[tuple[str, str, str], ...]:
    """Name, value for the typical save, value for the largest one; where it is the same the third is empty."""
    usual, largest = save(store, typical_bytes(store)), save(store, store.largest_bytes * store.ranks)
    kept, spread = upkeep(store), fan(store)

    def two(name: str, text: str, of: str, scale: float = 1) -> tuple[str, str, str]:
        one, other = (text.format(getattr(each, of) / scale) for each in (usual, largest))
        return name, one, other

    grants = store.sustained_bytes_s / store.piece_bytes
    return (
        ("of a server: capacity", f"{store.capacity_bytes / store.servers / 1e12:.0f} TB", ""),
        ("of a server: sustained, peak", f"{store.sustained_bytes_s / store.servers / 1e6:.0f}, "
         f"{store.peak_bytes_s / store.servers / 1e6:.0f} MB/s", ""),
        ("of a rank: sustained", f"{store.sustained_bytes_s / store.ranks / 1e6:.0f} MB/s", ""),
        two("a save", "{:.1f} TB", "size_bytes", 1e12),
        two("its time at the sustained rate", "{:.1f} s", "sustained_s"),
        two("its time at the peak rate", "{:.1f} s", "peak_s"),
        two("pieces of 8 MiB", "{:,.0f}", "pieces"),
        two("requests to metadata", "{:,.0f}", "requests"),
        two("shards of metadata for them, at the peak", "{:.0f}", "shards"),
        ("the same names in one shard", f"{2 * store.ranks / store.shard_requests_s:.1f} s", ""),
        ("commits", "1", "1"),
        two("interval, if ranks stand still for it", "{:.0f} s", "interval_s"),
        two("part of the sustained rate, on average", "{:.1%}", "rate_share"),
        two("on disk a day, nothing retired", "{:.1f} PB", "day_bytes", 1e15),
        two("days until the store is full", "{:.0f}", "full_days"),
        ("grants of 8 MiB a second", f"{grants:,.0f}", ""),
        ("leases of a second, one a host", f"{store.hosts:,} a second", ""),
        ("weights: every rank reads them", f"{spread.by_rank_s / 3600:.1f} h", ""),
        ("weights: every host reads them", f"{spread.by_host_s / 60:.1f} min", ""),
        ("weights: read once, handed on", f"{spread.fanned_s:.0f} s, {spread.hops} hops", ""),
        ("outages of servers a day", f"{kept.outages:.0f}, of which {kept.lost_servers:.0f} lose their disks", ""),
        ("disks lost a day", f"{kept.lost_disks:.1f}", ""),
        ("repair of a lost server", f"{kept.server_repair_bytes / 1e12:.0f} TB moved, "
         f"{kept.server_repair_s / 60:.0f} min at a tenth of the rate", ""),
        ("repair, on average", f"{kept.traffic_share:.2%} of the rate, {kept.busy_share:.1%} of the time", ""),
    )  # fmt: skip
