"""The shipped site files; a package, so that an installation includes them."""
