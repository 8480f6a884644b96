"""Reconcile attempts with Slurm: one batched query for each scheduler; its answers are journaled.

- :mod:`.classify_end`: which records follow from an answer about an attempt; pure
- :mod:`.table`: the same by example, for docs/states.md and for the tests
- :mod:`.attempts`: query the schedulers, and journal what is new
- :mod:`.unreachable`: the notice for a job whose node Slurm has given up
- :mod:`.accounting_outages`: which sites' accounting is not queried for a while
- :mod:`.refresh`: the above, with the files read into the ledger before and after

Nothing here submits a job.
"""
