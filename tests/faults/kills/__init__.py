"""Random kills in one run of a fleet: what is drawn, how it is aimed, how the run is judged."""
