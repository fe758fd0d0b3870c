"""A byte-level byte-pair tokenizer, small enough to read.

Text is UTF-8 bytes; the first 256 tokens are the bytes themselves, so every text can be encoded and decoding is exact.
Each further token joins two earlier ones. Training joins the most frequent pair of neighbours over and over; ties go to
the smaller pair, so the same text gives the same vocabulary everywhere. Joins never cross a word boundary (a word is a
run of letters with the space before it, a run of other signs, or white space), which keeps both training and encoding
linear in the number of different words.

Rejected: a ready vocabulary of 100,000 tokens (it would be ten times larger than the whole model). Limit: made for a
corpus of some megabytes; training is pure Python.
"""

import re
from array import array
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Final

Pair = tuple[int, int]

BYTES: Final = 256
_WORD: Final = re.compile(rb" ?[A-Za-z']+| ?[0-9]+| ?[^A-Za-z0-9\s]+|\s+?(?= \S)|\s+", re.ASCII)


class Tokenizer:
    """`merges[i]` are the two tokens that token `256 + i` joins."""

    def __init__(self, merges: list[Pair]) -> None:
        self.merges = merges
        self._rank = {pair: index for index, pair in enumerate(merges)}
        self._bytes = [bytes([value]) for value in range(BYTES)]
        for left, right in merges:
            self._bytes.append(self._bytes[left] + self._bytes[right])
        self._known: dict[bytes, list[int]] = {}
        assert len(self._rank) == len(merges), "a pair is joined twice"

    @property
    def size(self) -> int:
        return BYTES + len(self.merges)

    def encode(self, text: str) -> "array[int]":
        """Tokens of a text, as 16-bit numbers."""
        assert self.size <= 1 << 16
        tokens = array("H")
        for word in _WORD.findall(text.encode()):
            tokens.extend(self._known.get(word) or self._encode_word(word))
        return tokens

    def decode(self, tokens: "array[int] | list[int]") -> str:
        """The text of some tokens. Bytes that are not UTF-8 (a cut inside a character) become U+FFFD."""
        return b"".join([self._bytes[token] for token in tokens]).decode(errors="replace")

    def save(self, path: Path) -> None:
        path.write_text("".join(f"{left} {right}\n" for left, right in self.merges))

    @staticmethod
    def load(path: Path) -> "Tokenizer":
        rows = (line.split() for line in path.read_text().splitlines())
        return Tokenizer([(int(left), int(right)) for left, right in rows])

    def _encode_word(self, word: bytes) -> list[int]:
        tokens = list(word)
        while len(tokens) > 1:
            rank, place = min((self._rank.get(pair, BYTES << 16), at) for at, pair in enumerate(_pairs(tokens)))
            if rank == BYTES << 16:
                break
            tokens[place : place + 2] = [BYTES + rank]
        self._known[word] = tokens
        return tokens


def train(text: str, size: int) -> Tokenizer:
    """A tokenizer of `size` tokens from a text."""
    assert size >= BYTES
    words = [(list(word), count) for word, count in sorted(Counter(_WORD.findall(text.encode())).items())]
    counts: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for index, (tokens, count) in enumerate(words):
        for pair in _pairs(tokens):
            counts[pair] += count
            places[pair].add(index)
    merges: list[Pair] = []
    while len(merges) < size - BYTES and counts:
        best = max(counts, key=lambda pair: (counts[pair], -pair[0], -pair[1]))
        for index in places[best]:
            tokens, count = words[index]
            for pair in _pairs(tokens):
                counts[pair] -= count
            _join(tokens, best, BYTES + len(merges))
            for pair in _pairs(tokens):
                counts[pair] += count
                places[pair].add(index)
        merges.append(best)
        del counts[best], places[best]
    return Tokenizer(merges)


def _pairs(tokens: list[int]) -> list[Pair]:
    return list(pairwise(tokens))


def _join(tokens: list[int], pair: Pair, joined: int) -> None:
    at = 0
    while at < len(tokens) - 1:
        if (tokens[at], tokens[at + 1]) == pair:
            tokens[at : at + 2] = [joined]
        at += 1
