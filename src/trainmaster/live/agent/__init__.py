"""The agent: carries out effects on one host and reports what happens there. `agent.py` is where to start reading."""
