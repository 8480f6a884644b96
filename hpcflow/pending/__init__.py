"""What stands between a run and its start, and what its user may have of the cluster.

Pure: the caller has asked the scheduler. ``hpcflow why`` and ``hpcflow limits`` show it.
"""
