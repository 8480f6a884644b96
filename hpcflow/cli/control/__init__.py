"""Commands that stop and continue runs: by hand, or by the daemon."""
