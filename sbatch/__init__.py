"""The programs that sites call by their paths; a package, so that an installation has them."""
