"""The documentation; a package, so that an installation has it."""
