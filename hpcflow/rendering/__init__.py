"""Render a run to the text of its job script: pure, apart from reading the template files.

``job.py`` is the entry point. ``context.py`` has all values that a template can use, and a value
gets into a script only through ``quoting.py``. This package submits nothing, and uses no clock and
no environment variable.
"""
