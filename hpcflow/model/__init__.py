"""Pure values: what a run is, what states and causes there are, what the files hold.

Nothing here reads a file, a clock, an environment variable or a database.
"""
