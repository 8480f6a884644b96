"""Commands that keep and recover checkpoints."""
