"""Reconcile attempts with Slurm: query each scheduler in batches and journal the answers.

- :mod:`.classify_end`: the records that follow from an answer about an attempt; pure
- :mod:`.table`: the same by example, for docs/states.md and for the tests
- :mod:`.attempts`: query the schedulers, and journal what is new
- :mod:`.unreachable`: the notice for a job whose node Slurm has lost
- :mod:`.accounting`: query sacct, and not for a while if it does not answer
- :mod:`.refresh`: all of this, with the files read into the ledger before and after

Nothing here submits a job. Functions that use the ledger raise LedgerError if the database does not
answer.
"""
