"""List and prune what runs keep on scratch.

- :mod:`.checkpoints`: the checkpoints of a run, and why each is kept
- :mod:`.scratch`: the runs of a user, and when they are purged
"""
