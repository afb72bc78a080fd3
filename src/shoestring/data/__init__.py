"""Data: batches, and the sets that examples use."""

from .loader import DataLoader, Dataset, TensorDataset
from .mnist import Digits, mnist

__all__ = ["DataLoader", "Dataset", "Digits", "TensorDataset", "mnist"]
