"""Install and uninstall the daemon, so that it runs without a login.

Pure functions make all text, so that it can be shown before it is written.
"""
