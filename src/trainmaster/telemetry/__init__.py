"""What processes tell the tools of the system."""
