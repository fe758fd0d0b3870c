"""The server: one process, one writer, the core inside, HTTP outside."""
