"""Decoding with a target: plainly, and sped up by a drafter without changing the output."""

from lengthwise.dflash.decoding.evaluate import evaluate
from lengthwise.dflash.decoding.evaluation import Evaluation, Mismatch, TaskEvaluation
from lengthwise.dflash.decoding.generation import Generation
from lengthwise.dflash.decoding.plain import generate, greedy
from lengthwise.dflash.decoding.proposer import DrafterProposer, Proposal, Proposer
from lengthwise.dflash.decoding.sampling import Sampling
from lengthwise.dflash.decoding.speculate import speculate

__all__ = [
    "DrafterProposer",
    "Evaluation",
    "Generation",
    "Mismatch",
    "Proposal",
    "Proposer",
    "Sampling",
    "TaskEvaluation",
    "evaluate",
    "generate",
    "greedy",
    "speculate",
]
