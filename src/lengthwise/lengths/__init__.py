"""The lengths of this thing: files, data sets and arrays of many kinds as int64 lengths.

``api`` finds the reader; each format has one file; ``checks`` looks for silent failures. Optional
packages are imported inside the functions that need them.
"""
