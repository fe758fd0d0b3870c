"""Names and files of a mount's store, without a mount."""

import errno
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.storage.fuse.database import APPLICATION_ID, ROOT, VERSION, Database, Ticket
from trainmaster.storage.fuse.names import EXCHANGE, NOREPLACE, Accepted, File, Made, Names
from trainmaster.storage.fuse.refused import Refused

DIRECTORY = stat.S_IFDIR | 0o755
PLAIN = stat.S_IFREG | 0o644


class Tree:
    """Names with short words for a test: every step has the next number and the next time."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path)
        self.names = Names(self.database)
        self.at = self.names.id_max()

    def make(self, parent: int, name: bytes, mode: int = PLAIN, gid: int = 0) -> int:
        self.at += 1
        return self.names.make(parent, name, Made(self.at, mode, 0, gid, self.at)).id

    def rename(self, source: int, old: bytes, target: int, new: bytes, how: int = 0) -> File | None:
        self.at += 1
        return self.names.rename(source, old, target, new, how, self.at)

    def listing(self, parent: int = ROOT) -> dict[bytes, int]:
        return {name: file.id for _, name, file in self.names.listing(parent, 0, 1000)}


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    made = Tree(tmp_path / "names.sqlite")
    yield made
    made.database.close()


def refused(number: int, *, of: object = None) -> "pytest.RaisesExc[OSError]":
    return pytest.raises(OSError, check=lambda error: error.errno == number)


def test_making_and_finding(tree: Tree) -> None:
    """1. A directory and a file in it. 2. Links of the directories count. 3. The same name again is refused, and leaves
    no row. 4. Nothing is made below what has no name any more."""
    below = tree.make(ROOT, b"d", DIRECTORY)
    file = tree.make(below, b"f")
    assert tree.names.find(below, b"f") == tree.names.file(file)
    assert tree.names.file(ROOT).links == 3
    assert tree.names.file(below).mtime == file
    with refused(errno.EEXIST):
        tree.make(below, b"f")
    with refused(errno.ESTALE):
        tree.names.file(tree.at)
    tree.names.unlink(below, b"f", 1)
    tree.names.rmdir(ROOT, b"d", 1)
    with refused(errno.ENOENT):
        tree.make(below, b"g")


def test_a_directory_hands_its_group_down(tree: Tree) -> None:
    below = tree.names.file(tree.make(ROOT, b"d", DIRECTORY | stat.S_ISGID, gid=7))
    inner = tree.names.file(tree.make(below.id, b"i", DIRECTORY))
    file = tree.names.file(tree.make(below.id, b"f"))
    assert (inner.gid, inner.mode & stat.S_ISGID, file.gid, file.mode & stat.S_ISGID) == (7, stat.S_ISGID, 7, 0)


def test_a_file_ends_with_its_last_name_and_no_earlier(tree: Tree) -> None:
    """1. Two names. 2. One goes. 3. The other goes. 4. The row stays until it is buried, and leaves a note."""
    file = tree.make(ROOT, b"a")
    assert tree.names.link(file, ROOT, b"b", 5).links == 2
    assert tree.names.unlink(ROOT, b"a", 6).links == 1
    tree.names.bury([file])
    assert tree.names.file(file).links == 1, "it has a name"
    assert tree.names.unlink(ROOT, b"b", 7).links == 0
    assert tree.names.unlinked() == [file]
    tree.names.bury([file])
    assert (tree.names.unlinked(), tree.names.buried()) == ([], [file])
    assert tree.names.id_max() == file, "its number does not come back while its bytes are there"
    tree.names.forget_buried([file])
    assert tree.names.buried() == []


def test_directories_go_when_they_are_empty(tree: Tree) -> None:
    below = tree.make(ROOT, b"d", DIRECTORY)
    tree.make(below, b"f")
    with refused(errno.ENOTEMPTY):
        tree.names.rmdir(ROOT, b"d", 1)
    with refused(errno.ENOTDIR):
        tree.names.rmdir(below, b"f", 1)
    with refused(errno.EISDIR):
        tree.names.unlink(ROOT, b"d", 1)
    with refused(errno.EPERM):
        tree.names.link(below, ROOT, b"e", 1)
    tree.names.unlink(below, b"f", 1)
    assert tree.names.rmdir(ROOT, b"d", 1).links == 0
    assert tree.names.file(ROOT).links == 2


def test_renaming(tree: Tree) -> None:
    """1. A file over a file, which loses its name. 2. A directory with all below it. 3. Over an empty directory. 4. Two
    names of one file: nothing happens."""
    one, two = tree.make(ROOT, b"1"), tree.make(ROOT, b"2")
    replaced = tree.rename(ROOT, b"1", ROOT, b"2")
    assert replaced is not None
    assert (replaced.id, replaced.links, tree.listing()) == (two, 0, {b"2": one})
    below, other = tree.make(ROOT, b"d", DIRECTORY), tree.make(ROOT, b"e", DIRECTORY)
    tree.make(below, b"f")
    assert tree.rename(ROOT, b"d", other, b"g") is None
    assert tree.names.file(below).parent == other
    assert (tree.names.file(ROOT).links, tree.names.file(other).links) == (3, 3)
    empty = tree.make(other, b"h", DIRECTORY)
    replaced = tree.rename(other, b"g", other, b"h")
    assert replaced is not None
    assert (replaced.id, tree.names.file(other).links) == (empty, 3)
    tree.names.link(one, ROOT, b"3", 1)
    assert tree.rename(ROOT, b"2", ROOT, b"3") is None
    assert tree.listing() == {b"2": one, b"3": one, b"e": other}


def test_renaming_that_is_refused(tree: Tree) -> None:
    below, inner = tree.make(ROOT, b"d", DIRECTORY), 0
    inner = tree.make(below, b"i", DIRECTORY)
    tree.make(ROOT, b"f")
    before = tree.listing()
    cases: list[tuple[int, bytes, int, bytes, int, int]] = [
        (ROOT, b"x", ROOT, b"y", 0, errno.ENOENT),
        (ROOT, b"d", inner, b"y", 0, errno.EINVAL),
        (ROOT, b"d", ROOT, b"f", 0, errno.ENOTDIR),
        (ROOT, b"f", ROOT, b"d", 0, errno.EISDIR),
        (below, b"i", ROOT, b"d", 0, errno.ENOTEMPTY),
        (ROOT, b"f", ROOT, b"d", NOREPLACE, errno.EEXIST),
        (ROOT, b"f", ROOT, b"y", EXCHANGE, errno.ENOENT),
        (ROOT, b"d", below, b"i", EXCHANGE, errno.EINVAL),
        (ROOT, b"f", ROOT, b"y", 4, errno.EINVAL),
    ]
    for source, old, target, new, how, number in cases:
        with refused(number):
            tree.rename(source, old, target, new, how)
    assert tree.listing() == before


def test_two_names_change_places(tree: Tree) -> None:
    """A directory and a file; parents and links follow."""
    home, below = tree.make(ROOT, b"h", DIRECTORY), tree.make(ROOT, b"d", DIRECTORY)
    file = tree.make(home, b"f")
    assert tree.rename(ROOT, b"d", home, b"f", EXCHANGE) is None
    assert (tree.listing(), tree.listing(home)) == ({b"h": home, b"d": file}, {b"f": below})
    assert tree.names.file(below).parent == home
    assert (tree.names.file(ROOT).links, tree.names.file(home).links) == (3, 3)


def test_a_listing_goes_on_where_it_was(tree: Tree) -> None:
    """1. Two of five names. 2. One that was seen goes, one is renamed. 3. The rest comes once."""
    for name in b"abcde":
        tree.make(ROOT, bytes([name]))
    first = tree.names.listing(ROOT, 0, 2)
    tree.names.unlink(ROOT, b"a", 1)
    tree.rename(ROOT, b"d", ROOT, b"z")
    rest = tree.names.listing(ROOT, first[-1][0], 10)
    assert [name for _, name, _ in first] == [b"a", b"b"]
    assert [name for _, name, _ in rest] == [b"c", b"z", b"e"]


def test_attributes(tree: Tree) -> None:
    names = tree.names
    for how, number in ((2, errno.ENODATA), (0, 0), (1, errno.EEXIST), (2, 0)):
        if number:
            with refused(number):
                names.set_attribute(ROOT, b"user.a", b"1", how, 1)
        else:
            names.set_attribute(ROOT, b"user.a", b"v%d" % how, how, 1)
    assert (names.attributes(ROOT), names.attribute(ROOT, b"user.a")) == ([b"user.a"], b"v2")
    with refused(errno.E2BIG):
        names.set_attribute(ROOT, b"user.a", bytes(70000), 0, 1)
    names.remove_attribute(ROOT, b"user.a", 1)
    for act in (names.attribute, lambda id, name: names.remove_attribute(id, name, 1)):
        with refused(errno.ENODATA):
            act(ROOT, b"user.a")


def test_all_is_there_again(tmp_path: Path) -> None:
    """1. Names, a link, attributes, what was accepted, a ticket. 2. The file is closed, and opened again."""
    tree = Tree(tmp_path / "names.sqlite")
    file = tree.make(ROOT, b"f")
    tree.names.make(ROOT, b"l", Made(9, stat.S_IFLNK | 0o777, 0, 0, 9, target=b"f"), Ticket(1, 77))
    tree.names.set_attribute(file, b"user.a", b"1", 0, 1)
    tree.names.accept(file, Accepted(5, 6))
    tree.database.sync()
    tree.database.close()
    tree = Tree(tmp_path / "names.sqlite")
    assert tree.listing() == {b"f": file, b"l": 9}
    assert (tree.names.target(9), tree.names.accepted(file), tree.names.accepted(9)) == (b"f", Accepted(5, 6), None)
    assert tree.names.attribute(file, b"user.a") == b"1"
    assert tree.database.carried_out() == {77}
    assert tree.names.regular(0, 10) == [(file, True)]
    tree.database.close()


def test_whether_a_mount_ended_well(tree: Tree) -> None:
    """1. A new store. 2. A mount that died. 3. One that ended."""
    assert tree.names.begin()
    assert not tree.names.begin()
    tree.names.end()
    assert tree.names.begin()


def test_what_fails_in_the_middle_leaves_nothing(tree: Tree) -> None:
    before = tree.names.file(ROOT)
    with pytest.raises(OSError, match="no such table"):
        _delete_and_fail(tree.database)
    assert tree.names.file(ROOT) == before


def _delete_and_fail(database: Database) -> None:
    with database.changing():
        database.execute("DELETE FROM files")
        database.execute("DELETE FROM nothing_of_that_name")


@pytest.mark.parametrize(
    ("pragma", "words"),
    [
        (f"user_version = {VERSION + 1}", f"has version {VERSION + 1}, and this program reads {VERSION}"),
        (f"application_id = {APPLICATION_ID + 1}", "is not the metadata of a store"),
    ],
)
def test_metadata_of_others_is_refused_and_left_alone(pragma: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "names.sqlite"
    Database(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA {pragma}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(Refused, match=words):
        Database(path)
    assert path.read_bytes() == before


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "names.sqlite"
    path.write_bytes(b"something else altogether" * 100)
    with pytest.raises(Refused, match="is not the metadata of a store"):
        Database(path)
