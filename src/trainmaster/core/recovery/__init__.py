"""Attempts, memberships, spares, first cause, restart budgets."""
