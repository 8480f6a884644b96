"""Why a run is pending, and what its user may use of the cluster.

Pure: the caller has asked the scheduler. ``hpcflow why`` and ``hpcflow limits`` show it.
"""
