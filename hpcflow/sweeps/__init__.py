"""Sweeps: many runs of one program with different parameters.

No process runs between two rounds. A round (``tick.py``) collects the reports of the trials, tells
the study, prunes trials, asks for as many new trials as the budget and ``parallel`` allow, and
submits them.
"""
