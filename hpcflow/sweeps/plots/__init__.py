"""Draw the figures of a sweep with Optuna, as pictures (PNG) and as pages (HTML).

================  ==================================================================================
figures.py        which figures a sweep has, of which study; which it has not, and why
curves.py         what the trials had reported on their way, as a study of its own
drawing.py        one figure as the bytes of a picture, and of a page that needs no network
files.py          all of them, in a folder
================  ==================================================================================
"""
