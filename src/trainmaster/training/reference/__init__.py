"""The reference trainer: a small Llama-style model on real text, sharded, that stops and resumes to the bit."""
