"""Render a run to the text of its job script: pure, apart from reading the template files.

``job.py`` is the way in, ``context.py`` is all that a template may know, ``quoting.py`` the only
way for a value to get into a script. Nothing here sends anything, and nothing here knows a clock
or an environment variable.
"""
