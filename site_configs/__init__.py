"""The site files that hpcflow brings along; a package, so that an installation has them."""
