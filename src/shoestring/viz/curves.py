"""The training curve as a picture: loss of every step (thin) and its running mean, test accuracy of
every epoch."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np


def save_curves(
    path: pathlib.Path,
    losses: Sequence[float],
    accuracies: Sequence[float],
    steps_per_epoch: int,
    title: str,
) -> bool:
    """Write the picture to `path`; False when matplotlib is not installed.

    losses: one per step;  accuracies: test accuracy after each epoch, from 0 to 1
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return False
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    epochs = np.arange(1, len(losses) + 1) / steps_per_epoch
    left.plot(epochs, losses, color="#9db8d9", linewidth=0.6, label="each step")
    window = max(10, len(losses) // 50)
    if len(losses) > window:
        smooth = np.convolve(losses, np.ones(window) / window, "valid")
        left.plot(
            epochs[window - 1 :],
            smooth,
            color="#1f4e8c",
            linewidth=1.8,
            label=f"mean of {window} steps",
        )
    left.set(xlabel="epoch", ylabel="training loss", yscale="log")
    left.legend(frameon=False)
    right.plot(
        np.arange(1, len(accuracies) + 1), [100 * a for a in accuracies], "o-", color="#b3541e"
    )
    for k, accuracy in enumerate(accuracies):
        right.annotate(
            f"{100 * accuracy:.2f} %",
            (k + 1, 100 * accuracy),
            textcoords="offset points",
            xytext=(0, 9),
            ha="center",
            bbox=dict(boxstyle="round,pad=0.15", facecolor="white", edgecolor="none"),
        )
    right.set(xlabel="epoch", ylabel="test accuracy (%)", xticks=np.arange(1, len(accuracies) + 1))
    right.margins(x=0.2, y=0.3)
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True
