"""Optimisers, learning-rate schedules, and what looks after gradients."""

from .accumulate import accumulate
from .gradients import check_nan_gradients, clip_grad_norm_, print_tensor_stats
from .optimizer import SGD, Adam, AdamW, Optimizer
from .schedule import CosineDecay, CosineWarmRestarts, LinearDecay, Schedule, StepDecay

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineDecay",
    "CosineWarmRestarts",
    "LinearDecay",
    "Optimizer",
    "Schedule",
    "StepDecay",
    "accumulate",
    "check_nan_gradients",
    "clip_grad_norm_",
    "print_tensor_stats",
]
