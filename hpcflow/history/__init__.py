"""The history of a run: its journal as one immutable value. Pure.

:mod:`hpcflow.ledger.fold` interprets journal records for the ledger, and :mod:`hpcflow.costs`
filters those about checkpoints from long journals.
"""

from hpcflow.history.attempts import AttemptHistory, LastAttempt
from hpcflow.history.run import RunHistory

__all__ = ["AttemptHistory", "LastAttempt", "RunHistory"]
