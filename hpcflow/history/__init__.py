"""The history of a run: its journal as one immutable value. Pure.

Only :mod:`hpcflow.ledger.fold`, which adds new lines to the rows of the ledger, interprets journal
records as well.
"""

from hpcflow.history.attempts import AttemptHistory, LastAttempt, Sending
from hpcflow.history.run import CheckpointHistory, RunHistory

__all__ = ["AttemptHistory", "CheckpointHistory", "LastAttempt", "RunHistory", "Sending"]
