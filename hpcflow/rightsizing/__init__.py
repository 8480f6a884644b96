"""Rightsizing: compare resources requested and used, give advice, and estimate GPU memory.

:mod:`hpcflow.runtime.sampling` measures the usage in the job, and reports it in events to the
ledger. This package reads no files and does not query the scheduler.
"""
