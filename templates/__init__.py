"""The templates of job scripts and pages; a package, so that an installation has them."""
