"""Check runs round after round, by the one process that has the lease; who supervises a home."""
