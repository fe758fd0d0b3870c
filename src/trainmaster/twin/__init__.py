"""The simulated world: the second host of the core. Whatever decides here is what decides in production."""
