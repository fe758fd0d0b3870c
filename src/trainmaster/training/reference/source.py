"""Where the reference trainer's tokens come from: the shipped corpus, or shards in a directory that all hosts share."""

import argparse
from pathlib import Path

from trainmaster.storage.contents import locate
from trainmaster.storage.host_cache import HostCache
from trainmaster.training.errors import TrainingError
from trainmaster.training.loader import AHEAD, Loader, Wanted
from trainmaster.training.reference import corpus
from trainmaster.training.reference.data import Batch, Samples
from trainmaster.training.runtime import Session
from trainmaster.training.shards import Tokens


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, help="directory with shards of tokens (default: the shipped corpus)")
    parser.add_argument("--fetch-ahead", type=int, default=AHEAD, help="batches fetched ahead (default: %(default)s)")


def samples(session: Session, options: argparse.Namespace) -> Samples:
    """Raises `TrainingError`."""
    if options.data is None:
        return Samples(corpus.tokens(), options.seq_len, options.seed)
    try:
        cache = HostCache(session.host_dir, session.attempt)
    except OSError as error:
        raise TrainingError(f"the cache of the host can't be made in {session.host_dir}: {error}") from error
    tokens = Tokens(*locate(options.data), cache)
    if len(tokens) <= options.seq_len:
        raise TrainingError(
            f"{options.data} has {len(tokens)} tokens, no sample of {options.seq_len} and a target; lower --seq-len"
        )
    return Samples(tokens, options.seq_len, options.seed)


def loader(session: Session, options: argparse.Namespace) -> Loader[Batch]:
    """Inputs and targets of this rank, fetched ahead. Raises `TrainingError`."""
    if options.fetch_ahead < 0:
        raise TrainingError(f"--fetch-ahead {options.fetch_ahead} is no number of batches; use 0 or more")
    read = samples(session, options)

    def fetch(wanted: Wanted) -> Batch:
        return read.batch(wanted.first, wanted.global_batch, wanted.rank, wanted.world)

    return Loader(fetch, ahead=options.fetch_ahead, tell=session.waited_for_data)
