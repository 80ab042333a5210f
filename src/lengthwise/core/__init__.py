"""The planner: pure functions from lengths and a frozen config to arrays.

No files, no clock, no rank look-up, no global random state.
"""
