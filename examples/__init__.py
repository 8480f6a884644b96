"""The examples that the documentation names; a package, so that an installation has them."""
