"""Explain why a run is pending, and what its user may use of the cluster.

Pure: the caller queries the scheduler. ``hpcflow why`` and ``hpcflow limits`` show it.
"""
