"""Draw the figures of a sweep with Optuna, as PNG and HTML.

================  ==================================================================================
figures.py        selects the figures of a sweep, and says why others are left out
drawing.py        one figure as PNG, or as HTML that needs no network
files.py          all figures, in a directory
================  ==================================================================================
"""
