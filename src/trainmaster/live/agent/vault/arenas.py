"""The arenas of the ranks of this host, mapped once.

A mapping of gigabytes costs a page fault for every sixteen pages the first time it is read, so it is kept for as long
as the file is the same one. What the vault says to a rank it says here: words of the header, and a note that several
threads may write.
"""

import threading
from pathlib import Path

from trainmaster.storage import arena as arenas
from trainmaster.storage.arena import Arena


class OwnArena:
    """The arena of a rank, and the words that the vault writes into it."""

    def __init__(self, path: Path, arena: Arena, inode: int) -> None:
        self.path, self.arena, self.inode = path, arena, inode
        self._lock = threading.Lock()

    def busy(self, sequence: int) -> None:
        """Which snapshot is being read for storage; 0: none."""
        self.arena.put_word("busy_sequence", sequence)

    def replicated(self, sequence: int) -> None:
        self.arena.put_word("replicated_sequence", sequence)

    def given_up(self, sequence: int, why: str) -> None:
        with self._lock:
            self.arena.put_note(why)
            self.arena.put_word("given_up_sequence", sequence)

    def stored(self, step: int, complaint: str) -> None:
        with self._lock:
            if complaint:
                self.arena.put_note(complaint)
            self.arena.put_word("stored_step", max(step, self.arena.word("stored_step")))

    def not_stored(self, why: str) -> None:
        with self._lock:
            self.arena.put_note(why)
            self.arena.put_word("failed_stores", self.arena.word("failed_stores") + 1)


class OwnArenas:
    """All arenas of this host, by path. Used by one thread."""

    def __init__(self) -> None:
        self._known: dict[str, OwnArena] = {}

    def get(self, path: str) -> OwnArena | None:
        """None if there is none. Raises `OSError` for a file that can't be mapped."""
        place = Path(path)
        try:
            inode = place.stat().st_ino
        except FileNotFoundError:
            self._known.pop(path, None)
            return None
        known = self._known.get(path)
        if known is None or known.inode != inode:
            arena = arenas.map_file(place)
            if arena is None:
                return None
            known = self._known[path] = OwnArena(place, arena, inode)
        return known
