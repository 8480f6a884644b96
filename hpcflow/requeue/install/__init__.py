"""Install and uninstall the daemon, so that it runs without a login.

- :mod:`.place`: of which daemon we speak: its names, its command, its log
- :mod:`.environment`: the variables that it needs where there are none
- :mod:`.cron`, :mod:`.scrontab`: a line in a table, every so often one round
- :mod:`.systemd`: a unit of the user's own service manager
- :mod:`.slurm_job`: a small job; what it does inside is in :mod:`hpcflow.requeue.job`
- :mod:`.table`: the text of such a table, with a block of ours in it; pure
- :mod:`.table_program`: reading and writing it through ``crontab`` or ``scrontab``
- :mod:`.ledger_for_jobs`: whether the ledger may be opened on a compute node
- :mod:`.ways`: all four, by name

What is written is made by pure functions and can be seen before it is written.
"""
