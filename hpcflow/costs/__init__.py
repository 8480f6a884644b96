"""What was spent: reports over the bills of all attempts, and their audit against accounting.

The bills themselves are written where ends are seen: :mod:`hpcflow.reconcile.billing`.
"""
