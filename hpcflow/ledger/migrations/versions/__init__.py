"""One file per version of the tables, numbered 0001, 0002, …; never changed once released."""
