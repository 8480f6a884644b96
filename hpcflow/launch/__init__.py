"""Plan, submit, resume and cancel runs.

:mod:`hpcflow.requeue` decides when a run is resubmitted.
"""
