"""Read the newest checkpoint on scratch, as a fact for the policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from hpcflow.model.retry import Retry
from hpcflow.requeue.policy import NO_PROGRESS, Decision, Facts
from hpcflow.restore.local import newest_found
from hpcflow.storage.layout import RunDir


def with_progress_on_scratch(
    facts: Facts,
    run_dir: RunDir,
    rule: Callable[[Facts, Retry, datetime], Decision],
    policy: Retry,
    now: datetime,
) -> Facts:
    """Return the facts; if ``rule`` finds no progress, with the newest complete checkpoint on
    scratch, whose event may have been purged or torn."""
    if rule(facts, policy, now).rule != NO_PROGRESS or (found := newest_found(run_dir)) is None:
        return facts
    attempts = [
        replace(each, checkpoint=max(found.train_step, each.checkpoint or 0))
        if each.number == found.attempt
        else each
        for each in facts.attempts
    ]
    return replace(facts, attempts=attempts)
