"""The edge of health: files that are read for it, and the policy that ships with it."""
