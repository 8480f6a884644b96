"""Seeing what became of jobs: one batched question to each scheduler, and its answer journaled.

- :mod:`.judge`: pure; what an answer says about an attempt
- :mod:`.table`: that by example, for docs/states.md and for the tests
- :mod:`.attempts`: asking, and journaling what is new
- :mod:`.unreachable`: what is told to a job whose node Slurm has given up
- :mod:`.silence`: whose accounting need not be asked just now
- :mod:`.refresh`: the above, between reading files into the ledger and doing so again

Nothing here acts on a run.
"""
