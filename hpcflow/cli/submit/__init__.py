"""Commands that submit runs, or show what would be submitted."""
