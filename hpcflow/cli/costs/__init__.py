"""Commands about costs, budgets, limits and efficiency."""
