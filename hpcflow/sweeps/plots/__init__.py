"""Draw the figures of a sweep with Optuna, as PNG and HTML."""
