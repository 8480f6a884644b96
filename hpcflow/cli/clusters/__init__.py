"""Commands for a cluster and this installation."""
