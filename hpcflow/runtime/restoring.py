"""Choose the checkpoint to resume from, and read the state of each rank in it.

Rank 0 names a checkpoint, newest first. All ranks verify it, each its share of the files, because
one rank would take too long. If any rank finds damage, rank 0 names the one before.
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
    """The checkpoint that the program resumes from.

    Attributes:
        shared_state: the state of rank 0; empty if there is none.
        rank_state: the state of this rank; None if there is none, or their number has changed.
        placed: data loaders, data sets and samplers that have their position in the data again.
        metrics: those of the checkpoint; empty if it is of another run.
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
    """Return the newest intact checkpoint in ``store``, or else ``hint``, or else ``begin``.

    All ranks call it together, and get the same.

    Args:
        verified: the SHA-256 of the manifest of a checkpoint that was verified a moment ago; its
            files are not read again.
        begin: a checkpoint of another run, for a run without one of its own.

    Raises:
        CheckpointError: on all ranks: none is intact, but one may be: it could not be read, or
            another node sees it and this one does not; or ``begin`` is damaged.
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
        raise CheckpointError(f"{begin}, which this run starts from, is not intact: see above")
    return None


def _require_read(unread: list[str], ranks: Ranks) -> None:
    """Raise CheckpointError on all ranks if a checkpoint could not be read.

    Otherwise a short failure of a disk would restart the training from its beginning.
    """
    if ranks.max(int(bool(unread))):
        why = unread[0] if unread else "another rank could not read one"
        raise CheckpointError(f"no checkpoint to continue from, but there may be one: {why}")


def read_rank_state(folder: Path, rank: int) -> dict[str, Any] | None:
    """Return the state of rank ``rank`` in the checkpoint; None if there was no such rank.

    Raises:
        CheckpointError: the state is not a JSON object.
    """
    path = folder / rank_file(rank)
    if not path.exists():
        return None
    state = read_json(path)
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return state


def rank_file(rank: int) -> str:
    """Return the name of the file with a rank's random state and position in the data."""
    return f"rank-{rank:05d}.json"


#: The choice that ranks exchange: no checkpoint, ``hint``, or one by its train step.
_NONE, _HINT, _FIRST = range(3)


def _candidates(store: CheckpointStore, hint: Path | None, unread: list[str]) -> Iterator[int]:
    choices = [_FIRST + train_step for train_step in store.train_steps()]
    if hint is not None:
        choices.append(_HINT)
    # All ranks check only checkpoints that have a manifest.
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
        return False  # the verification reports why


def _is_whole(
    store: CheckpointStore,
    hint: Path | None,
    choice: int,
    share: Share,
    unread: list[str],
    *,
    is_seen: bool,
) -> bool:
    """Return whether the files of ``share`` are intact; warn with the reason if not.

    Args:
        unread: gets the reason, if the disk is at fault and not the checkpoint.
        is_seen: whether rank 0, or hpcflow at submission, has seen its manifest. If it is missing
            now, a file system is not mounted here, or shows an old state.
    """
    path = hint if choice == _HINT else store.path(choice - _FIRST)
    what = "cannot use checkpoint" if choice == _HINT else "skipped checkpoint"
    try:
        if path is None:
            raise NotThere("HPCFLOW_RESUME_FROM or HPCFLOW_BEGIN_FROM is not set on all ranks")
        if choice == _HINT:
            verify(path, share)
        else:
            store.check(path, share)
    except CheckpointError as error:
        warn(f"{what} {path}: {error}")
        if isinstance(error, NotThere) and is_seen:
            unread.append(f"{path}: it is not visible on this node; is its file system mounted?")
        elif isinstance(error.__cause__, OSError):
            unread.append(f"{path}: {error}")
        return False
    return True
