"""Commands that show runs, and wait for them."""
