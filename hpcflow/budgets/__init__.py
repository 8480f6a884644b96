"""Budgets: what a project, a user, a sweep or a run may spend, has spent, and has committed.

Each budget is an append-only file: who set it and when, the commitments to attempts before their
submission, and their costs. :mod:`.state` sums the lines, pure; :mod:`.folder` has the files and
their lock; :mod:`.commitments` commits to an attempt, and settles it by its bill. ``launch``
submits attempts, and ``reconcile`` has the bills.
"""
