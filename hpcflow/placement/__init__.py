"""Choose where a run goes, by the expected time and cost in each partition.

- :mod:`.choosing`: compare every partition that the run fits; :mod:`.candidates`: list them
- :mod:`.choice`: rank them; :mod:`.expected`, :mod:`.mtbf`, :mod:`.price`: time and cost
- :mod:`.forecast`: query the live cluster; :mod:`.size`: check limits
- :mod:`.alternatives`: requests that would start sooner or cost less;
  :mod:`.pending_alternatives`: the same for a pending run
- :mod:`.next_placement`: place the next attempt; :mod:`.run_paths`: the paths of a run on a site
"""
