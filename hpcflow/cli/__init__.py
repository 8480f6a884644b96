"""The command line: a folder for each section of ``hpcflow --help``, and what all commands share.

A command is imported only when it is called.
"""
