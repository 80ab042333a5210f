"""The engine of several machines: every child of a pipeline is an actor of Ray.

What differs from the engine of one machine is how children are started, spoken to, heard and
ended, and where features wait: in Ray's object store, on the machine of the target that made them,
until the rank that needs them fetches them from there. The coordinator has references and sees no
byte of them.
"""
