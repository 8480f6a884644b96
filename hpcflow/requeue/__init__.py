"""Supervise runs: decide what follows the end of an attempt, and do it.

- :mod:`.policy`: ``decide()``, pure: facts, policy, now -> what to do, and by which rule
- :mod:`.table`: the rules by example, for docs/states.md and for the tests
- :mod:`.facts`, :mod:`.budget_facts`: the facts for the policy, and whether they are current
- :mod:`.stall_policy`: whether a running attempt has stalled, pure; :mod:`.stall_watch`: how long
  each has been silent; :mod:`.stall_suspects`, :mod:`.stalls`: check all of them; notice or cancel
- :mod:`.nodes`, :mod:`.exclusion`: which nodes fail runs; which a job excludes
- :mod:`.round_warnings`: runs that a round leaves alone, and that need their owner
- :mod:`.daemon`: round after round, by the process that has the lease (:mod:`hpcflow.ledger.lease`)
- :mod:`.install`: keep the daemon running without a login; :mod:`.job`: as a job of Slurm
- :mod:`.begin_time`: start restarted jobs without Slurm's wait; :mod:`.standbys`: the jobs that
  wait for the end of an attempt
- :mod:`.round_context`: what a round works with; :mod:`.run_errors`: isolate the errors of one run
- :mod:`.tick`: one round: refresh, decide, act. It can be killed at any point and run again

:mod:`hpcflow.reconcile` queries Slurm about jobs, and :mod:`hpcflow.launch` submits them. Functions
that use the ledger raise LedgerError if the database does not answer.
"""
