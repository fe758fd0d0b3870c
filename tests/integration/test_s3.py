"""Checkpoints in a bucket: the store against a real server of S3, `trainmaster ckpt` on it, and `ckpt pull` on a way
that damages, refuses and breaks off."""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes import s3
from tests.fakes.checkpoints import checkpoint
from tests.fakes.command import CommandLine

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import encode
from trainmaster.core.checkpoint.index import BLOCK_BYTES, Index
from trainmaster.core.checkpoint.listing import MANIFEST_NAME
from trainmaster.core.checkpoint.manifest import SCHEMA, FileEntry, Manifest
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage import directory, s3_access
from trainmaster.storage.buffers import BUFFER_BYTES
from trainmaster.storage.checksum import crc32
from trainmaster.storage.directory import OwnerMark, Pin
from trainmaster.storage.pieces import Pieces
from trainmaster.storage.place import Place
from trainmaster.storage.publishing import publishing
from trainmaster.storage.s3_access import NoAccess, access
from trainmaster.storage.s3_store import S3Store
from trainmaster.storage.transfer import Damage, Want, read, scan, write

pytest.importorskip("obstore")
pytest.importorskip("moto")
pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
NOISE = hashlib.shake_256(b"s3").digest(1 << 20)
ROWS = [[float(row * 7 + column) for column in range(512)] for row in range(512)]
BIG = [[float(row ^ column) for column in range(1024)] for row in range(5 * 1024)]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3.server() as address:
        s3.bucket(address)
        yield address


@pytest.fixture
def way(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.Way]:
    """The way that this process takes to the server."""
    made = s3.Way(server)
    (tmp_path / "home").mkdir()
    s3.environment(monkeypatch, made.address, tmp_path / "home")
    yield made
    made.end()


@pytest.fixture
def line(way: s3.Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch)


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"of/{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]}"


def sent(path: Path, prefix: str) -> str:
    """A checkpoint of a directory, copied into the bucket file by file, the manifest last; and where it is."""
    store = S3Store(s3.BUCKET, prefix)
    for file in sorted(path.iterdir(), key=lambda each: (each.name == MANIFEST_NAME, each.name)):
        data = file.read_bytes()
        if len(data) < BLOCK_BYTES:
            store.put(path.name, file.name, data)
        else:
            write(store.create(path.name, file.name, len(data)), Pieces([data]))
    return f"s3://{s3.BUCKET}/{prefix}/{path.name}"


@pytest.mark.parametrize("size", [0, 1, BUFFER_BYTES, 3 * BUFFER_BYTES + 77])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_blob_is_written_and_read_back(way: s3.Way, prefix: str, size: int, threads: int) -> None:
    """1. A blob of any size goes up, in parts if it is large. 2. It comes back bit for bit, whole and in stretches, and
    its sums are those of the bytes. 3. There is no second one of its name."""
    data = (NOISE * (size // len(NOISE) + 1))[:size]
    store = S3Store(s3.BUCKET, f"{prefix}{size}-{threads}")
    written = write(store.create("group", "blob", size), Pieces([data]), threads)
    assert store.sizes("group") == {"blob": size}
    assert store.get("group", "blob") == data
    parts = {path for method, path, _ in way.requests if method == "PUT" and "partNumber" in path}
    assert len(parts) == -(-size // BUFFER_BYTES)
    source = store.open("group", "blob")
    into = bytearray(size // 2)
    read(source, "blob", [Want(size - len(into), memoryview(into))], written.sums)
    assert into == data[size - len(into) :]
    scan(source, "blob", written.sums)
    with pytest.raises(EOFError):
        source.read_into([memoryview(bytearray(2))], size - 1)
    with pytest.raises(FileExistsError):
        store.create("group", "blob", size)
    with pytest.raises(FileExistsError):
        store.put("group", "blob", b"")


def test_an_upload_that_fails_leaves_no_blob_and_no_thread(way: s3.Way, prefix: str) -> None:
    """1. The first stretch goes up, then the writer gives up. 2. Nothing appears, no part is left, no thread."""
    store = S3Store(s3.BUCKET, prefix)
    sink = store.create("group", "blob", 3 * BUFFER_BYTES)
    sink.write([memoryview(bytes(BUFFER_BYTES))], 0)
    sink.abandon()
    assert not [thread for thread in threading.enumerate() if thread.name == "upload"]
    assert s3.pending_uploads(way.address) == []
    with pytest.raises(FileNotFoundError, match="there is nothing below"):
        store.sizes("group")


def test_a_server_that_is_busy_is_asked_again_and_one_that_is_gone_is_named(
    way: s3.Way, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Two answers of 503 are waited out. 2. A server that always says so, and one that does not answer, are given up
    after some tries, and the error says where it was and what came back."""
    store = S3Store(s3.BUCKET, prefix)
    way.refuse = 2
    store.put("group", "blob", b"abc")
    assert store.get("group", "blob") == b"abc"
    assert way.refuse == 0
    monkeypatch.setattr(s3_access, "RETRIES", 2)
    way.refuse = 1 << 30
    with pytest.raises(ConnectionError, match=r"group/blob cannot be reached: .*after 2 retries.*503"):
        S3Store(s3.BUCKET, prefix).get("group", "blob")
    way.refuse, way.cut = 0, 0
    with pytest.raises(ConnectionError, match=r"group/blob cannot be reached"):
        S3Store(s3.BUCKET, prefix).get("group", "blob")


def test_what_is_not_there_and_not_allowed(way: s3.Way, prefix: str) -> None:
    store = S3Store("nobodys-bucket", prefix)
    with pytest.raises(FileNotFoundError, match=f"there is no bucket for s3://nobodys-bucket/{prefix}/group/blob"):
        store.get("group", "blob")
    with pytest.raises(FileNotFoundError, match=r"there is no s3://models/.*/group/blob"):
        S3Store(s3.BUCKET, prefix).get("group", "blob")
    assert S3Store(s3.BUCKET, prefix).groups() == []


def test_commands_see_a_bucket_as_they_see_a_directory(line: CommandLine, tmp_path: Path, prefix: str) -> None:
    """1. Two published steps, a save that has not ended, something of nobody's. 2. `ls` tells them apart. 3. `show`,
    `verify`, `diff`, `export` say of the bucket what they say of the directory. 4. A flipped bit is found, and named
    with its tensor. 5. Nothing is noted in the bucket."""
    older = checkpoint(tmp_path / "c", 4, {"model.w": ROWS, "step": [[4.0]]}, world=2)
    newer = checkpoint(tmp_path / "c", 8, {"model.w": ROWS, "step": [[8.0]]}, world=3)
    root = f"s3://{s3.BUCKET}/{prefix}"
    assert [sent(each, prefix) for each in (older, newer)] == [f"{root}/{each.name}" for each in (older, newer)]
    store = S3Store(s3.BUCKET, prefix)
    store.put("step-00000012", "owner.json", (older / "owner.json").read_bytes())
    store.put("notes", "a.txt", b"x")
    listed = json.loads(line.run("ckpt", "ls", root, "-o", "json").out)["items"]
    assert [(each["name"], each["state"], each["job"]) for each in listed] == [
        ("step-00000012", "unfinished", "job-1"),
        ("step-00000008", "published", "job-1"),
        ("step-00000004", "published", "job-1"),
    ]
    here = json.loads(line.run("ckpt", "show", str(newer), "-o", "json").out)
    there = json.loads(line.run("ckpt", "show", f"{root}/{newer.name}", "-o", "json").out)
    assert there == here
    told = line.run("ckpt", "diff", f"{root}/{older.name}", str(newer), "-o", "json")
    assert (told.code, [each["name"] for each in json.loads(told.out)["items"]]) == (1, ["step"])
    assert line.run("ckpt", "diff", f"{root}/{newer.name}", str(newer)).code == 0
    for place, file in ((f"{root}/{older.name}", "a.safetensors"), (str(older), "b.safetensors")):
        assert line.run("ckpt", "export", place, file).code == 0
    assert (tmp_path / "home/a.safetensors").read_bytes() == (tmp_path / "home/b.safetensors").read_bytes()
    assert line.run("ckpt", "verify", root).code == 0
    shard = bytearray(store.get(newer.name, "__1_0.distcp"))
    shard[9] ^= 1
    store.remove(newer.name, ["__1_0.distcp"])
    store.put(newer.name, "__1_0.distcp", bytes(shard))
    ran = line.run("ckpt", "verify", root, "-o", "json")
    assert ran.code == 1
    assert [each["sound"] for each in json.loads(ran.out)["items"]] == [False, True]
    assert "__1_0.distcp has its size but not its content" in ran.out
    assert "(tensors: model.w" in ran.out
    assert set(store.sizes(older.name)) == {each.name for each in older.iterdir()}


def test_what_cannot_be_reached_is_a_message_and_tells_no_secret(
    line: CommandLine, way: s3.Way, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. No such place, no such bucket, no such checkpoint: 3. 2. A server that is gone: 6. 3. No credentials, or a
    profile that is not there: 5. 4. Never a traceback, never a key."""
    monkeypatch.setattr(s3_access, "RETRIES", 1)
    said = [
        (line.run("ckpt", "ls", "s3://"), 2),
        (line.run("ckpt", "ls", "gs://models"), 2),
        (line.run("ckpt", "show", "s3://models"), 1),
        (line.run("ckpt", "show", f"s3://models/{prefix}/step-00000001"), 3),
        (line.run("ckpt", "verify", f"s3://models/{prefix}"), 3),
        (line.run("ckpt", "ls", "s3://nobodys-bucket"), 3),
        (line.run("ckpt", "pull", f"s3://models/{prefix}", "c"), 3),
    ]
    way.cut = 0
    said.append((line.run("ckpt", "ls", "s3://models"), 6))
    monkeypatch.setenv("AWS_PROFILE", "absent")
    said.append((line.run("ckpt", "ls", "s3://models"), 5))
    for ran, code in said:
        assert ran.code == code, ran.err
        assert ran.err.startswith(("error:", "Usage:")), ran.err
        assert "Traceback" not in ran.err
        assert s3.SECRET not in ran.out + ran.err
        assert s3.KEY not in ran.out + ran.err
    assert "there is no profile absent" in said[-1][0].err


def test_pull_brings_a_checkpoint_whole(line: CommandLine, way: s3.Way, tmp_path: Path, prefix: str) -> None:
    """1. A checkpoint with a pin comes into a new directory: the same files bit for bit, without the pin, known to be
    sound, and its job's. 2. Pulled again, nothing is fetched. 3. A different one of the same step is not replaced."""
    path = checkpoint(tmp_path / "c", 8, {"model.w": BIG}, world=2)
    directory.note(path, directory.PIN_NAME, Pin(reason="baseline", by="kim", at=1))
    place = sent(path, prefix)
    ran = line.run("ckpt", "pull", place, str(tmp_path / "d"), "-o", "json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["fetched_bytes"] == json.loads(ran.out)["size_bytes"] > len(BIG) * 4 * 1024
    final = tmp_path / "d" / path.name
    want = {each.name: each.read_bytes() for each in path.iterdir() if each.name != "pin.json"}
    have = {each.name: each.read_bytes() for each in final.iterdir() if each.name != "verdict.json"}
    assert have == want
    assert [each.name for each in (tmp_path / "d").iterdir()] == [path.name]
    seen = json.loads(line.run("ckpt", "ls", str(tmp_path / "d"), "-o", "json").out)["items"][0]
    assert (seen["state"], seen["sound"], seen["job"], seen["pin"]) == ("published", True, "job-1", "")
    before = way.fetched_bytes()
    again = json.loads(line.run("ckpt", "pull", place, str(tmp_path / "d"), "-o", "json").out)
    assert again["fetched_bytes"] == 0
    assert way.fetched_bytes() - before < BLOCK_BYTES
    other = checkpoint(tmp_path / "e", 8, {"model.w": ROWS})
    refused = line.run("ckpt", "pull", str(other), str(tmp_path / "d"))
    assert (refused.code, "it is not replaced" in refused.err) == (1, True)
    assert (final / "manifest.json").read_bytes() == want["manifest.json"]


def test_a_pull_that_was_cut_goes_on_where_it_was(
    line: CommandLine, way: s3.Way, tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The way ends after a few stretches: 6, and nothing that looks like a checkpoint is there. 2. Meanwhile a block
    of what has come rots on the disk, and somebody leaves a file. 3. The next try fetches what is missing and what
    rotted, no more, and what it publishes is the checkpoint, bit for bit."""
    monkeypatch.setattr(s3_access, "RETRIES", 1)
    path = checkpoint(tmp_path / "c", 8, {"model.w": BIG, "model.v": BIG})
    place = sent(path, prefix)
    way.cut = 3
    ran = line.run("ckpt", "pull", place, str(tmp_path / "d"))
    assert ran.code == 6, ran.err
    assert not (tmp_path / "d" / path.name).exists()
    listed = line.run("ckpt", "ls", str(tmp_path / "d"), "-o", "json")
    assert [(item["name"], item["state"]) for item in json.loads(listed.out)["items"]] == [
        (f".pull-{path.name}", "unfinished")
    ]
    hidden = tmp_path / "d" / f".pull-{path.name}"
    shard = hidden / "__0_0.distcp"
    data, whole = bytearray(shard.read_bytes()), (path / "__0_0.distcp").read_bytes()
    stretches = range(0, len(data), BUFFER_BYTES)
    there = [at for at in stretches if data[at : at + BUFFER_BYTES] == whole[at : at + BUFFER_BYTES]]
    assert 0 < len(there) < len(stretches)
    data[there[0] + 5] ^= 1
    shard.write_bytes(data)
    (hidden / "strange.txt").write_text("x")
    way.cut = None
    way.requests.clear()
    ran = line.run("ckpt", "pull", place, str(tmp_path / "d"), "-o", "json")
    assert ran.code == 0, ran.err
    missing = sum(min(BUFFER_BYTES, len(data) - at) for at in stretches if at not in there[1:])
    small = (path / "index.json").stat().st_size
    assert missing <= json.loads(ran.out)["fetched_bytes"] <= missing + small
    assert way.fetched_bytes() < missing + 64 * 1024
    final = tmp_path / "d" / path.name
    assert (final / "__0_0.distcp").read_bytes() == whole
    assert not hidden.exists()
    assert not (final / "strange.txt").exists()


def test_damage_on_the_way_is_fetched_again_and_damage_in_the_store_is_passed_over(
    line: CommandLine, way: s3.Way, tmp_path: Path, prefix: str
) -> None:
    """1. A bit flips on the way: it is fetched once more, and the copy is whole. 2. The newest step in the store is
    damaged, the one before it torn (no index), the one before that sound: that one comes, and it is said why. 3. Of a
    store where none is sound nothing comes: 1."""
    paths = [checkpoint(tmp_path / "c", step, {"model.w": ROWS, "s": [[float(step)]]}) for step in (4, 8, 12)]
    root = f"s3://{s3.BUCKET}/{prefix}"
    for path in paths:
        sent(path, prefix)
    way.flip = 1
    assert line.run("ckpt", "pull", f"{root}/{paths[2].name}", "flipped").code == 0
    assert way.flip == 0
    got = (tmp_path / "home/flipped" / paths[2].name / "__0_0.distcp").read_bytes()
    assert got == (paths[2] / "__0_0.distcp").read_bytes()
    store = S3Store(s3.BUCKET, prefix)
    shard = bytearray(store.get(paths[2].name, "__0_0.distcp"))
    shard[-1] ^= 0x80
    store.remove(paths[2].name, ["__0_0.distcp"])
    store.put(paths[2].name, "__0_0.distcp", bytes(shard))
    store.remove(paths[1].name, ["index.json"])
    ran = line.run("ckpt", "pull", root, "newest")
    assert ran.code == 0, ran.err
    assert "step-00000012 cannot be used: __0_0.distcp has its size but not its content" in ran.err
    assert "step-00000008 cannot be used: index.json is missing" in ran.err
    published = [each.name for each in (tmp_path / "home/newest").iterdir() if not each.name.startswith(".")]
    assert published == ["step-00000004"]
    store.remove(paths[0].name, ["manifest.json"])
    ran = line.run("ckpt", "pull", root, "none")
    assert (ran.code, "can be used" in ran.err) == (1, True)
    assert [each.name for each in (tmp_path / "home/none").iterdir() if not each.name.startswith(".")] == []


def test_pull_refuses_what_it_cannot_vouch_for(line: CommandLine, tmp_path: Path) -> None:
    """1. Another program's checkpoint: nothing says what its bytes should be. 2. A file where the directory should be.
    3. A copy into the same place is under way."""
    foreign = tmp_path / "foreign" / "step-5"
    foreign.mkdir(parents=True)
    (foreign / ".metadata").write_bytes(b"\x80\x02.")
    ran = line.run("ckpt", "pull", str(foreign), "d")
    assert ran.code == 1
    (tmp_path / "file").write_text("x")
    path = checkpoint(tmp_path / "c", 8, {"model.w": ROWS})
    assert line.run("ckpt", "pull", str(path), str(tmp_path / "file")).code == 2
    import fcntl

    hidden = tmp_path / "d" / f".pull-{path.name}"
    hidden.mkdir(parents=True)
    handle = os.open(hidden, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    ran = line.run("ckpt", "pull", str(path), str(tmp_path / "d"))
    os.close(handle)
    assert (ran.code, "is under way" in ran.err) == (1, True)
    assert line.run("ckpt", "pull", str(path), str(tmp_path / "d")).code == 0


def test_a_pull_that_cannot_fit_says_so_before_it_fetches(
    line: CommandLine, way: s3.Way, tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The volume has less room than the checkpoint takes: 1, with the numbers. 2. No shard was asked for, nothing
    looks like a checkpoint. 3. With room it comes."""
    place = sent(checkpoint(tmp_path / "c", 8, {"model.w": ROWS}), prefix)
    way.requests.clear()
    real = directory.volume
    monkeypatch.setattr(directory, "volume", lambda path: real(path).but(free_bytes=1000))
    ran = line.run("ckpt", "pull", place, str(tmp_path / "d"))
    assert (ran.code, "1000 bytes free" in ran.err, "make room" in ran.err) == (1, True, True), ran.err
    assert f"cannot use {tmp_path / 'd'}" in ran.err
    assert not [path for _, path, _ in way.requests if path.endswith("__0_0.distcp")]
    assert not (tmp_path / "d" / "step-00000008").exists()
    monkeypatch.setattr(directory, "volume", real)
    assert line.run("ckpt", "pull", place, str(tmp_path / "d")).code == 0


def test_the_readme_shows_what_works(line: CommandLine, tmp_path: Path, prefix: str) -> None:
    """The commands of its section, in their order, on a checkpoint that lies in a directory and in a bucket."""
    path = checkpoint(tmp_path / "checkpoints", 1200, {"model.w": ROWS, "optimizer.m": [[1.0]]}, world=2)
    sent(path, prefix)
    section = (ROOT / "README.md").read_text().partition("\n## Checkpoints\n")[2].partition("\n## ")[0]
    lines = [
        shown[2:].split("  #")[0].split() for shown in section.splitlines() if shown.startswith("$ trainmaster ckpt")
    ]
    assert len(lines) == 6
    for words in lines:
        placed = [
            word.replace("s3://models/llama", f"s3://{s3.BUCKET}/{prefix}")
            .replace("/checkpoints", str(tmp_path / "checkpoints"))
            .replace("/scratch", str(tmp_path / "scratch"))
            for word in words[1:]
        ]
        ran = line.run(*placed)
        assert ran.code == 0, (words, ran.err)
    assert (tmp_path / "home" / "model.safetensors").exists()


def test_access_comes_from_where_other_tools_look(tmp_path: Path) -> None:
    """1. Variables come first. 2. Then the profile of the shared files. 3. One that needs a program is refused with the
    command that resolves it. 4. A file that is no such file is named, its lines are not."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = AKDEFAULT\naws_secret_access_key = s3cr%t\n[lab]\n"
        "aws_access_key_id = AKLAB\naws_secret_access_key = y\naws_session_token = t\n"
    )
    (tmp_path / ".aws/config").write_text(
        "[profile lab]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:9\n[profile sso]\nsso_session = x\n"
    )
    found = access({}, tmp_path)
    assert (found["access_key_id"], found["secret_access_key"], found["region"]) == ("AKDEFAULT", "s3cr%t", "us-east-1")
    found = access({"AWS_PROFILE": "lab"}, tmp_path)
    assert (found["access_key_id"], found["session_token"], found["region"]) == ("AKLAB", "t", "eu-west-1")
    assert found["endpoint"] == "http://127.0.0.1:9"
    assert found["client_options"]["allow_http"]
    found = access({"AWS_PROFILE": "lab", "AWS_ACCESS_KEY_ID": "AKENV", "AWS_REGION": "ap-south-1"}, tmp_path)
    assert "access_key_id" not in found
    assert found["region"] == "ap-south-1"
    with pytest.raises(NoAccess, match=r"export-credentials --profile sso"):
        access({"AWS_PROFILE": "sso"}, tmp_path)
    with pytest.raises(NoAccess, match="there are no credentials"):
        access({"AWS_EC2_METADATA_DISABLED": "true"}, tmp_path / "elsewhere")
    (tmp_path / ".aws/credentials").write_text("aws_secret_access_key = very-secret\n")
    with pytest.raises(NoAccess, match="cannot be understood") as caught:
        access({}, tmp_path)
    assert "very-secret" not in str(caught.value)


def test_a_damaged_blob_is_damage_whatever_store_it_lies_in(way: s3.Way, prefix: str) -> None:
    store = S3Store(s3.BUCKET, prefix)
    data = NOISE * 3
    written = write(store.create("group", "blob", len(data)), Pieces([data]))
    way.flip = 1
    source = store.open("group", "blob")
    with pytest.raises(Damage, match="blob has its size but not its content"):
        scan(source, "blob", written.sums)
    assert str(Place("s3://models/a/b/").parent) == "s3://models/a"
    assert str(Place("s3://models/a").parent) == "s3://models"


def test_a_save_goes_to_a_bucket_and_a_load_comes_from_it(line: CommandLine, prefix: str) -> None:
    """1. `dcp.save` through our writer into a bucket, `dcp.load` from it: equal bit for bit. 2. What is published is
    not written over; what another job left unfinished is not touched; what our own left is cleared away. 3. A writer
    whose claim was taken over publishes nothing, and the one that took over does."""
    torch = pytest.importorskip("torch")
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException

    from trainmaster.training.distcp import CheckpointReader, CheckpointWriter

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    root = f"s3://{s3.BUCKET}/{prefix}"
    state = {"w": torch.arange(3_000_000, dtype=torch.float32), "step": 7}
    try:
        writer = CheckpointWriter(root, step=7)
        dcp.save(state, storage_writer=writer)
        loaded = {"w": torch.zeros(3_000_000), "step": 0}
        dcp.load(loaded, storage_reader=CheckpointReader(writer.where))
        assert torch.equal(loaded["w"], state["w"])
        assert loaded["step"] == 7
        assert line.run("ckpt", "verify", root).code == 0
        with pytest.raises(CheckpointException, match="is published already; it is not written over"):
            dcp.save(state, storage_writer=CheckpointWriter(root, step=7))
        store = S3Store(s3.BUCKET, prefix)
        store.put("step-00000008", "owner.json", directory.encoded(OwnerMark(job=JobId("theirs"), attempt=1, epoch=1)))
        with pytest.raises(CheckpointException, match="is not this job's; remove it"):
            dcp.save(state, storage_writer=CheckpointWriter(root, step=8))
        store.put("step-00000009", "owner.json", directory.encoded(OwnerMark(job=JobId("local"), attempt=0, epoch=0)))
        store.put("step-00000009", "__0_0.old.distcp", b"leftover")
        dcp.save(state, storage_writer=CheckpointWriter(root, step=9))
        assert "__0_0.old.distcp" not in store.sizes("step-00000009")
        _two_writers(root)
    finally:
        dist.destroy_process_group()
    assert line.run("ckpt", "verify", root).code == 0
    listed = json.loads(line.run("ckpt", "ls", root, "-o", "json").out)["items"]
    assert [(each["step"], each["state"]) for each in listed] == [
        (10, "published"), (9, "published"), (8, "unfinished"), (7, "published"),
    ]  # fmt: skip


def _two_writers(root: str) -> None:
    """One of two that save one step, in turns: the later claim wins."""
    mark = OwnerMark(job=JobId("local"), attempt=0, epoch=0)
    first, second = (publishing(Place(root), mark, 10) for _ in (0, 1))
    first.open(0)
    one = f"__0_0{first.see()}.distcp"
    first.store.put(first.group, one, b"first")
    second.open(0)
    other = f"__0_0{second.see()}.distcp"
    assert one != other
    second.store.put(second.group, other, b"second")
    first.store.put(first.group, one, b"first, late")
    with pytest.raises(OSError, match=r"another writer took step-00000010 in .* over; this one publishes nothing"):
        first.publish(_manifest(one, b"first, late"))
    index = encode(Index(tensors={}))
    second.store.put(second.group, "index.json", index)
    second.publish(_manifest(other, b"second", index))


def _manifest(name: str, data: bytes, index: bytes = b"") -> Manifest:
    return Manifest(
        schema=SCHEMA, job=JobId("local"), attempt=AttemptId("local.a0"), epoch=0, step=10, world=1,
        position=Position(samples=0, global_batch=1, step=10), writer="host-1",
        files=tuple(
            FileEntry(name=each, size_bytes=len(content), crc32=crc32(content))
            for each, content in ((name, data), ("index.json", index)) if content
        ),
    )  # fmt: skip
