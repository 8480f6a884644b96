"""Record and freeze the code of a run."""
