"""What training will take, before it runs: seconds an epoch, tokens a second, with an interval.

Order of reading: ``pricing`` (what a batch costs, and how sure that is), ``prediction`` (the
result), ``plan`` (exactly, batch by batch), ``expected`` (from a histogram), ``strategies`` (next
to each other), ``candidates`` and ``search`` (what would be faster).
"""

from lengthwise.predict.expected import predict_expected
from lengthwise.predict.plan import predict_plan
from lengthwise.predict.prediction import Prediction
from lengthwise.predict.pricing import Fit, Timing
from lengthwise.predict.search import Candidate, SecondsSearch, optimize_seconds
from lengthwise.predict.strategies import StrategyPrediction, predict_strategies, usual_strategies

__all__ = [
    "Candidate",
    "Fit",
    "Prediction",
    "SecondsSearch",
    "StrategyPrediction",
    "Timing",
    "optimize_seconds",
    "predict_expected",
    "predict_plan",
    "predict_strategies",
    "usual_strategies",
]
