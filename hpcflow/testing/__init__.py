"""Fakes, contract suites and the development cluster for tests; hpcflow imports none of it."""
