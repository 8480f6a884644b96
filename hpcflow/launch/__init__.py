"""Plan, submit, resume and cancel runs.

- :mod:`.plan`: config + overrides + site -> the whole request
- :mod:`.submission`: submit an attempt exactly once
- :mod:`.run`: create a run from a plan
- :mod:`.resume`: submit the next attempt of a run; :mod:`.cancel`: cancel a run
- :mod:`.jobs`: which jobs belong to a run, on which cluster

:mod:`hpcflow.requeue` decides when a run is resubmitted.
"""
