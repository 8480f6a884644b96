"""The history of a run: what its journal says, as one immutable value. Pure.

Beside this package, :mod:`hpcflow.ledger.fold` interprets journal records for the ledger, and
:mod:`hpcflow.costs` filters those about checkpoints from long journals.
"""

from hpcflow.history.attempt import AttemptHistory
from hpcflow.history.last_attempt import LastAttempt
from hpcflow.history.run import RunHistory

__all__ = ["AttemptHistory", "LastAttempt", "RunHistory"]
