"""Run directories and their files: create, append, read. No decisions, no database."""
