"""The newest checkpoint on scratch as a fact for the policy."""

from __future__ import annotations

from dataclasses import replace

from hpcflow.requeue.policy import Facts
from hpcflow.restore.local import newest_found
from hpcflow.storage.layout import RunDir


def with_newest(facts: Facts, run_dir: RunDir) -> Facts:
    """The facts with the newest complete checkpoint on scratch, as that of the attempt that made
    it. Its event can be lost: purged, torn, or changed in a shared ledger by another user.

    Raises:
        StorageError: that cannot be found out.
    """
    found = newest_found(run_dir)
    if found is None:
        return facts
    attempts = [
        replace(each, checkpoint=max(found.train_step, each.checkpoint or 0))
        if each.number == found.attempt
        else each
        for each in facts.attempts
    ]
    return replace(facts, attempts=attempts)
