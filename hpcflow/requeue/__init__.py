"""Bringing every run to its end: what becomes of it when an attempt is over, and doing so.

- :mod:`.policy`: ``decide()``, pure: facts, policy, now -> what to do, and by which rule
- :mod:`.table`: the rules by example, for docs/states.md and for the tests
- :mod:`.facts`: what the ledger knows of a run, as facts for the policy
- :mod:`.patience`: whether an attempt that runs has stalled, pure; :mod:`.watch`: how long each has
  been silent; :mod:`.stalls`: a look at all of them, and the notice or the cancel
- :mod:`.evidence`, :mod:`.nodes`, :mod:`.exclusion`: which nodes fail runs; which a job avoids
- :mod:`.kept_out`: which jobs wait for nodes that they avoid
- :mod:`.daemon`: round after round, by the process that has the lease (:mod:`hpcflow.ledger.lease`)
- :mod:`.install`: keeping it at work where nobody is logged in; :mod:`.job`: as a job of Slurm
- :mod:`.departures`: which jobs say that they are about to leave
- :mod:`.begin`: start restarted jobs without Slurm's wait; :mod:`.standbys`: the jobs that
  wait for the end of an attempt
- :mod:`.surroundings`: what a round works with; :mod:`.troubles`: what goes wrong in it
- :mod:`.tick`: one round: look, decide, act. May be killed anywhere, and run again

Nothing here looks at Slurm by itself (:mod:`hpcflow.observe`) or sends (:mod:`hpcflow.launch`).
"""
