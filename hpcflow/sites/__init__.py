"""Site files: their schema, how they are read, and how they compare with the live cluster."""
