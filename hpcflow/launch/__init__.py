"""From a config to a job, and what is done with a run afterwards by hand.

- :mod:`.plan`: config + overrides + site -> the whole request, which can be looked at
- :mod:`.submission`: sending an attempt exactly once
- :mod:`.run`: making a new run of a plan
- :mod:`.resume`: sending the next attempt of one; :mod:`.cancel`: stopping one for good
- :mod:`.checkpoints`: which there are, why each is kept, and removing the others
- :mod:`.jobs`: which jobs are a run's, on which cluster
- :mod:`.provenance`: which state of the user's code a run came from

Nothing here decides *when* a run is resubmitted; that is the requeue daemon's.
"""
