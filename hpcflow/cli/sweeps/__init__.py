"""``hpcflow sweep``: hyperparameter searches."""
