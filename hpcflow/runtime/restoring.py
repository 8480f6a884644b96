"""Which checkpoint to go on from, and what it says of each rank.

Rank 0 names one, newest first, and all ranks read it, each its share of the files: a checkpoint of
many ranks is more than one of them could read in reasonable time. If any finds something wrong, the
one before is next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.manifest import NAME, NOTHING, CheckpointError, NotThere, Share, verify
from hpcflow.runtime.objects import read_json
from hpcflow.runtime.ranks import Ranks
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.warn import warn


@dataclass(frozen=True)
class Restored:
    """What the program goes on from.

    Attributes:
        shared_state: the state of rank 0; empty when there is none.
        rank_state: the state of this rank; None when there is none, or the ranks were others.
        placed: what gives out data, and was put to its place in it.
        metrics: what it says of the training; of another run's checkpoint nothing.
    """

    path: Path
    train_step: int
    shared_state: dict[str, Any]
    rank_state: dict[str, Any] | None
    placed: list[Any]
    metrics: dict[str, float]


def choose(
    store: CheckpointStore,
    hint: Path | None,
    ranks: Ranks,
    verified: str | None = None,
    *,
    begin: Path | None = None,
) -> Path | None:
    """The newest whole checkpoint in ``store``, or else ``hint`` if that is whole, or ``begin``.

    All ranks call it together, and get the same.

    Args:
        verified: the SHA-256 of the manifest of one that was read and found whole a moment ago; it
            is not read once more.
        begin: one of another run, for a run that has none of its own; the last that is tried.

    Raises:
        CheckpointError: none is whole, and one could not be read, or was seen by another node
            and is not by this one, so it may be; or ``begin`` is damaged: on all ranks.
    """
    unread: list[str] = []
    hint = None if hint == begin else hint
    candidates = _candidates(store, hint, unread) if ranks.rank == 0 else iter(())
    while True:
        choice = ranks.max(next(candidates, _NONE))
        if choice == _NONE:
            break
        path = hint if choice == _HINT else store.path(choice - _FIRST)
        share = Share(ranks.rank, ranks.world_size, sizes_only=_is_of(path, verified))
        is_torn = not _is_whole(store, hint, choice, share, unread, is_seen=True)
        if not ranks.max(int(is_torn)):
            if choice >= _FIRST:
                store.trust(choice - _FIRST)
            return path
    _require_read(unread, ranks)
    if ranks.max(int(begin is not None)):
        share = Share(ranks.rank, ranks.world_size, sizes_only=_is_of(begin, verified))
        is_torn = not _is_whole(store, begin, _HINT, share, unread, is_seen=True)
        if not ranks.max(int(is_torn)):
            return begin
        _require_read(unread, ranks)
        raise CheckpointError(f"{begin}, which this run begins from, is not whole: see above")
    return None


def _require_read(unread: list[str], ranks: Ranks) -> None:
    """Raises CheckpointError on all ranks: a disk that fails for a moment must not cost all that
    was trained."""
    if ranks.max(int(bool(unread))):
        why = unread[0] if unread else "another rank could not read one"
        raise CheckpointError(f"no checkpoint to continue from, but there may be one: {why}")


def read_rank_state(folder: Path, rank: int) -> dict[str, Any] | None:
    """What rank number ``rank`` has left in the checkpoint, if there was one.

    Raises:
        CheckpointError: that makes no sense.
    """
    path = folder / rank_file(rank)
    if not path.exists():
        return None
    state = read_json(path)
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return state


def rank_file(rank: int) -> str:
    """What the file is called that a rank keeps its random numbers and its place in the data in."""
    return f"rank-{rank:05d}.json"


#: What ranks tell each other: no checkpoint, the one given to begin from, or one by its train step.
_NONE, _HINT, _FIRST = range(3)


def _candidates(store: CheckpointStore, hint: Path | None, unread: list[str]) -> Iterator[int]:
    choices = [_FIRST + train_step for train_step in store.train_steps()]
    if hint is not None:
        choices.append(_HINT)
    # What has no manifest is not worth asking all ranks.
    return (
        choice
        for choice in choices
        if _is_whole(store, hint, choice, NOTHING, unread, is_seen=choice == _HINT)
    )


def _is_of(path: Path | None, manifest_sha256: str | None) -> bool:
    if path is None or manifest_sha256 is None:
        return False
    try:
        return sha256_of(path / NAME, manifest_sha256) == manifest_sha256
    except OSError:
        return False  # the reader says why


def _is_whole(
    store: CheckpointStore,
    hint: Path | None,
    choice: int,
    share: Share,
    unread: list[str],
    *,
    is_seen: bool,
) -> bool:
    """Whether it is, as far as ``share`` shows; a warning says why it is not.

    Args:
        unread: gets the reason, where the disk is at fault and not the checkpoint.
        is_seen: whether somebody has seen its manifest: rank 0, or who submitted the job. If it is
            not there now, a file system is not mounted here, or shows what was before.
    """
    path = hint if choice == _HINT else store.path(choice - _FIRST)
    what = "cannot begin from" if choice == _HINT else "skipped checkpoint"
    try:
        if path is None:
            raise NotThere("HPCFLOW_RESUME_FROM, or HPCFLOW_BEGIN_FROM, is not set on all ranks")
        if choice == _HINT:
            verify(path, share)
        else:
            store.check(path, share)
    except CheckpointError as error:
        warn(f"{what} {path}: {error}")
        if isinstance(error, NotThere) and is_seen:
            unread.append(f"{path}: it was seen, and is not seen here; is its disk mounted?")
        elif isinstance(error.__cause__, OSError):
            unread.append(f"{path}: {error}")
        return False
    return True
