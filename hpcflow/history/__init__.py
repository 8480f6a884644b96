"""The history of a run: what its journal says, as one immutable value. Pure.

Outside this package only :mod:`hpcflow.ledger.fold` interprets journal records.
"""

from hpcflow.history.attempt import AttemptHistory
from hpcflow.history.last_attempt import LastAttempt
from hpcflow.history.run import RunHistory

__all__ = ["AttemptHistory", "LastAttempt", "RunHistory"]
