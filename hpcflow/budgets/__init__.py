"""Budgets: what a project, a user, a sweep or a run may spend, has spent, and has committed.

Each budget is a file of its own, to which lines are appended: who set it and when, what was
committed to attempts before they were submitted, and what they cost. :mod:`.state` sums the lines,
pure; :mod:`.folder` has the files and their lock; :mod:`.commitments` commits to an attempt and
settles it. ``launch`` submits attempts, and ``reconcile`` has the bills.
"""
