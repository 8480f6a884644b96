"""Write changes of many runs; leave out a run with a value that the database cannot store."""

from __future__ import annotations

from collections.abc import Sequence

from hpcflow.errors import LedgerValueError
from hpcflow.ledger.rows import Change
from hpcflow.ledger.store import Ledger


def apply(ledger: Ledger, changes: Sequence[Change]) -> tuple[list[str], dict[str, str]]:
    """Write all changes at once; if one fails, write each alone.

    Returns:
        Ids of the skipped runs, as :meth:`Ledger.apply`; and run id -> why of those that cannot be
            stored, which are added to ``ledger.misfits``.
    """
    if not changes:
        return [], {}
    try:
        return ledger.apply(changes), {}
    except LedgerValueError as error:
        if len(changes) == 1:
            run_id = changes[0].run.run_id
            ledger.misfits.add(run_id)
            return [], {run_id: error.message}
    late: list[str] = []
    misfits: dict[str, str] = {}
    for change in changes:
        mine, why = apply(ledger, [change])
        late += mine
        misfits |= why
    return late, misfits
