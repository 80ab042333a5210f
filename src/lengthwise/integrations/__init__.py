"""Batches of a plan inside other people's training loops: one file a framework.

Each is imported only by who uses that framework, and takes every decision from the sampler.
"""
