"""Work on more than one machine, by Ray: nothing distributed is made here.

Ray is imported inside functions, and its absence is an error that names the extra.
"""
