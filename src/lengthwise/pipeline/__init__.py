"""Training through a pipeline: target devices make features, drafter devices learn from them.

All concurrency of lengthwise's training is in this folder. One coordinator tells target workers
what to run and drafter ranks what to learn from; features wait in one block of shared memory
between.
"""
