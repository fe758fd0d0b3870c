"""The edge of diagnosis: files, pickles that run nothing, the processes of ranks."""
