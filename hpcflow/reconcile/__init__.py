"""Reconcile attempts with Slurm: query each scheduler in batches and journal the answers.

- :mod:`.classify_end`: what is new about an attempt, by an answer; pure
- :mod:`.attempts`: query the schedulers, and journal what is new
- :mod:`.unreachable`: what precedes the record of an end that Slurm did not see
- :mod:`.accounting`: query sacct, and not for a while if it does not answer
- :mod:`.refresh`: all of this, with the files read into the ledger before and after

Nothing here submits a job. Functions that use the ledger raise LedgerError if the database does not
answer.
"""
