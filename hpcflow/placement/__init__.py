"""Choose where a run goes, by the expected time and cost in each partition.

- :mod:`.choosing`: compare every partition that the run fits
- :mod:`.choice`: list and rank them; :mod:`.mtbf`, :mod:`.price`: time and cost
- :mod:`.forecast`: query the live cluster, and check limits
- :mod:`.alternatives`: requests that would start sooner or cost less, also for a pending run
- :mod:`.run_paths`: the paths of a run on a site
"""
