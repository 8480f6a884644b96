"""Budgets: what a project, a user, a sweep or a run may spend, and what of it is spent or promised.

Each is a file of its own, to which lines are appended: who set it and when, what was committed to
attempts before they were sent, and what they came to. :mod:`.state` makes the sums of them, pure;
:mod:`.folder` has the files and their lock; :mod:`.commitments` is what is done before and after an
attempt. Which path sends an attempt is known above, in ``launch``; which bills there are, in
``observe``.
"""
