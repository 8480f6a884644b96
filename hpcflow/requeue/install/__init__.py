"""Install and uninstall the daemon, so that it runs without a login.

- :mod:`.place`: one daemon: its names, its command, its log
- :mod:`.environment`: the variables that it needs
- :mod:`.cron`, :mod:`.scrontab`: an entry that runs one round regularly
- :mod:`.systemd`: a unit of the user's service manager
- :mod:`.slurm_job`: a small job; :mod:`hpcflow.requeue.job` runs inside it
- :mod:`.table`: edit hpcflow's block in a crontab or scrontab, and read and write the table
- :mod:`.ledger_for_jobs`: whether the ledger may be opened on a compute node
- :mod:`.ways`: the interface of all four, and each by name

Pure functions make all text, so that it can be shown before it is written.
"""
