"""Site files: their schema, their loader, and their comparison with the live cluster."""
