"""A module a peer: its authors' settings, and its batches as lists of sample numbers."""
