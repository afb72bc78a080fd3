"""Layers and the functions behind them. nn/conv.py mirrors ops/conv.py, and so on."""

from . import init
from .activation import (
    GELU,
    LeakyReLU,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)
from .conv import Conv2D, conv2d
from .dropout import Dropout, dropout
from .linear import Linear, linear
from .loss import CrossEntropyLoss, cross_entropy, mse_loss
from .module import Flatten, Identity, Module, Sequential, parameters
from .norm import BatchNorm1D, BatchNorm2D
from .pool import AvgPool2D, MaxPool2D, avg_pool2d, max_pool2d

__all__ = [
    "GELU",
    "AvgPool2D",
    "BatchNorm1D",
    "BatchNorm2D",
    "Conv2D",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "Identity",
    "LeakyReLU",
    "Linear",
    "MaxPool2D",
    "Module",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "avg_pool2d",
    "conv2d",
    "cross_entropy",
    "dropout",
    "gelu",
    "init",
    "leaky_relu",
    "linear",
    "log_softmax",
    "max_pool2d",
    "mse_loss",
    "parameters",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
