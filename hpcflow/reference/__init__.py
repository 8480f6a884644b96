"""Generate the reference pages and the JSON Schemas in docs/ from the models and the commands.

``python -m hpcflow.reference`` writes them; a test fails while they differ from it.
"""
