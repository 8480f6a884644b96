"""Find running attempts that no longer train; give notice, then cancel them."""
