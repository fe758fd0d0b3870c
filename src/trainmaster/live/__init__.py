"""The live world: the server that hosts the core, the agents that carry effects out, adapters to real things."""
