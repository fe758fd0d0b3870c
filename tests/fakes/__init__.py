"""Stand-ins that behave, shared by the tests."""
