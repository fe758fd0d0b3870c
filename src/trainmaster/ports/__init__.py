"""What the core and the server need from the world, as protocols: a clock, a log, a way to the agents.

A port is as small as its one user allows. Adapters for the live world stand in `live/adapters`; the twin brings its
own.
"""
