"""The fakes, contract suites and development cluster that hpcflow is tested with, shipped.

Nothing in hpcflow itself imports from here.
"""
