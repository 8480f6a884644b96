"""Draw the figures of a sweep with Optuna, as PNG and HTML.

================  ==================================================================================
figures.py        selects the figures of a sweep, and says why others are left out
drawing.py        draws them into a directory, as PNG, and as HTML that needs no network
================  ==================================================================================
"""
