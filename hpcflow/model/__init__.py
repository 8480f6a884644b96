"""Pure values: runs, states, causes, and the contents of files.

Nothing here reads a file, a clock, an environment variable or a database.
"""
