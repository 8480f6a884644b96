"""Slurm as a :class:`hpcflow.schedulers.base.Scheduler`.

All parsers and the classification are pure functions of text.
"""
