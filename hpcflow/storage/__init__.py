"""Run directories and what lies in them: create, append, read. No decisions, no database."""
