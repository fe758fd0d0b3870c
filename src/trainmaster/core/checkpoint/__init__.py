"""What a complete checkpoint is, how it is published, what is kept."""
