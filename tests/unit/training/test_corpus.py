"""The shipped text, its tokens and its tokenizer belong together."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.training.reference import corpus
from trainmaster.training.reference.tokenizer import Tokenizer, train


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return corpus.tokenizer()


def test_the_shipped_tokens_are_the_shipped_text(tokenizer: Tokenizer) -> None:
    """Decoding gives the text back, and encoding it (a part here, for speed) gives the tokens."""
    text, tokens = corpus.text(), corpus.tokens()
    assert (len(text), len(tokens)) == (5_057_362, 1_813_107)
    assert tokenizer.size == corpus.VOCABULARY_SIZE
    assert max(tokens) < tokenizer.size
    assert tokenizer.decode(tokens) == text
    head = tokenizer.encode(text[:200_000])
    assert head[:-8] == tokens[: len(head) - 8]


@given(st.text())
@settings(max_examples=50, deadline=None)
def test_every_text_survives(text: str) -> None:
    tokenizer = corpus.tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_training_joins_the_most_frequent_pair_first(tmp_path: Path) -> None:
    """1. In this text `an` is the most frequent pair, then a pair with it. 2. Training twice gives the same."""
    text = "banana band an ban\n" * 3
    made = train(text, 260)
    assert made.merges[0] == (ord("a"), ord("n"))
    assert made.merges == train(text, 260).merges
    made.save(tmp_path / "merges")
    assert Tokenizer.load(tmp_path / "merges").merges == made.merges
    assert len(made.encode("ban")) < 3


def test_training_stops_when_nothing_is_left_to_join() -> None:
    assert train("ab", 300).merges == [(ord("a"), ord("b"))]
