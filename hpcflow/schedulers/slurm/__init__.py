"""Slurm as a :class:`hpcflow.schedulers.base.Scheduler`.

::

    commands.py      the scheduler, by sbatch, squeue, sacct, scancel, scontrol, sinfo, sacctmgr
    pyslurm.py       the same, with queries and cancel through the pyslurm library
    run_command.py   the only module that starts Slurm's programs
    submit.py        the interpretation of sbatch's answer; Slurm's messages, as a table
    parse_jobs.py    squeue and sacct -> JobInfo
    parse_cluster.py scontrol, sinfo and sacctmgr -> ClusterInfo
    outlook.py       the queries of a user's limits and of pending jobs
    parse_standing.py, parse_assoc_mgr.py, parse_waiting.py, parse_scontrol.py  their answers
    reasons.py       pending reasons in plain words; reason_limits.py: those that name a limit
    job_ids.py       123_[4-7]: the notation for many jobs
    hostlist.py      n[1-4]: the notation for many nodes
    units.py         1-12:00:00 and cpu=8,mem=2000M: the notations for time and resources

All parsers and the classification are pure functions of text.
"""
