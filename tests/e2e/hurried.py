"""``hpcflow`` with less patience: ``python hurried.py SECONDS daemon …``.

A lease, how long a job must be missing before it has vanished, and for how long an accounting that
was silent is not asked, are so many seconds, not minutes; what Slurm did not take is tried again at
once. All else is as installed. For a user of the cluster, so it imports nothing of the tests.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import hpcflow.reconcile.accounting
import hpcflow.reconcile.classify_end
import hpcflow.requeue.daemon.loop
from hpcflow.cli.main import main
from hpcflow.requeue import facts


def hurry(patience_s: float) -> None:
    """From now on in this process."""
    vars(hpcflow.requeue.daemon.loop)["TTL_S"] = patience_s
    vars(hpcflow.reconcile.classify_end)["VANISHED_AFTER_S"] = patience_s
    vars(hpcflow.reconcile.classify_end)["LOOK_COUNTS_S"] = patience_s / 2
    vars(hpcflow.reconcile.accounting)["LASTS"] = timedelta(seconds=patience_s)
    vars(facts)["_DELAY_S"] = 0.05


if __name__ == "__main__":
    hurry(float(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
