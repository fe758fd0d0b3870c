"""Boards as files on a memory file system, mapped by the agent."""

import mmap
import os
from pathlib import Path

from trainmaster.core.agent.board import SIZE, Board


class MappedBoard(Board):
    """A board whose page is a file. The page stays readable after the file is removed."""

    def __init__(self, path: Path, fresh: bool) -> None:
        """`fresh` makes a new, cleared page. Raises `OSError`, or `ValueError` if the file is no board."""
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if fresh else 0), 0o600)
        try:
            if fresh:
                os.ftruncate(handle, SIZE)
            self._page = mmap.mmap(handle, SIZE)
        finally:
            os.close(handle)
        self._view = memoryview(self._page)
        super().__init__(self._view)
        if fresh:
            self.clear()
        elif not self.is_valid():
            self.close()
            raise ValueError(f"{path} is not a board")

    def close(self) -> None:
        self._view.release()
        self._page.close()
