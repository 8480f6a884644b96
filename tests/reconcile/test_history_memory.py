"""A round reads ten thousand journals: their histories leave memory as soon as nobody uses them."""

from __future__ import annotations

import gc
import weakref

from hpcflow.history.run import RunHistory
from hpcflow.model.journal import parse_record
from tests.ledger import lines as say


def test_a_history_leaves_without_the_garbage_collector() -> None:
    lines = say.intended(1) + say.submitted(1)
    history = RunHistory.of(map(parse_record, lines.splitlines()))
    assert history.own_attempts is None
    assert history.own_bills == []
    gc.disable()
    try:
        left = weakref.ref(history)
        del history
        assert left() is None
    finally:
        gc.enable()
