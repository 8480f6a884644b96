"""Run directories and what lies in them: creating, appending, reading. No decisions, no database."""
