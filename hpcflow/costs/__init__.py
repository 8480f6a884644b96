"""Cost reports over the bills of all attempts, and their audit against accounting.

:mod:`hpcflow.reconcile.billing` writes the bills.
"""
