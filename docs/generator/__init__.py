"""Generate the reference pages and the JSON Schemas in docs/ from the models and the commands.

The rows of two tables in docs/states.md, :mod:`.ends` and :mod:`.decisions`, are examples that the
tests compare with the code.
``python -m docs.generator`` writes them; a test fails while they differ from it.
"""
