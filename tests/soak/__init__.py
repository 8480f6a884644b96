"""Proofs that run for long: thousands of damaged files, kills and strangers, each with an oracle.

``make soak``, or ``python -m tests.soak [PART…] --seed N --tries N``. Not a part of ``make test``,
but for a few tries of each part (test_smoke.py). A part says in its module what must hold after
each try; what does not is a finding, told with the seed and the number of the try that show it
again: ``--seed N --only TRY``.

``make soak`` also runs the tests with the mark ``soak``: each is the long form of one in ``make
test``.
"""
