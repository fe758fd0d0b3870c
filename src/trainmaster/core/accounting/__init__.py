"""Where the time of a job went."""
