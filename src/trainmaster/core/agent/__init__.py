"""What an agent decides; the real agent and a simulated one run it."""
