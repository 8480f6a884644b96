"""Seeing what became of jobs: one batched question to each scheduler, and its answer journaled.

- :mod:`.judge`: pure; what an answer says about an attempt
- :mod:`.refresh`: asking, journaling, projecting

Nothing here acts on a run.
"""
