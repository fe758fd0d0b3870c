"""Maintenance: operations on overlapping scopes, visits, trains, rollouts, and the capacity they may take."""
