"""The command line: one file a noun, imported only when the noun is used."""
