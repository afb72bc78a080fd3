"""Batches. Everything here is NumPy until a batch is handed out as tensors.

Without shuffling, batches are slices of tensors made once: views, no copies. With it each epoch has
another order, that depends only on the seed and the epoch, whatever else draws random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from .. import runtime
from ..errors import fail
from ..tensor import Tensor
from ..variable import tensor


class Dataset(Protocol):
    """Anything with a length whose item k is one sample: an array, or a tuple of arrays and
    numbers."""

    def __len__(self) -> int: ...
    def __getitem__(self, k: int) -> Any: ...


class TensorDataset:
    """Arrays of equal length as one dataset: item k is (a[k], b[k], ...)."""

    def __init__(self, *arrays: Any) -> None:
        self.arrays = [a.numpy() if isinstance(a, Tensor) else np.asarray(a) for a in arrays]
        lengths = [len(a) if a.ndim else 0 for a in self.arrays]
        if len(set(lengths)) != 1 or not all(a.ndim for a in self.arrays):
            shapes = [list(a.shape) for a in self.arrays]
            fail(
                "shape/dataset.lengths",
                f"arrays have different lengths: {lengths}"
                if len(set(lengths)) > 1
                else f"there is nothing to count in arrays of shapes {shapes}",
                op="TensorDataset",
                tensors={},
                hint="one row per sample in each",
            )

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, k: int) -> tuple:
        return tuple(a[k] for a in self.arrays)


class Place:
    """Where a loop over a DataLoader stands: `batch` is the number of the next one."""

    def __init__(self, epoch: int, batch: int, seed: int) -> None:
        self.epoch, self.batch, self.seed = epoch, batch, seed


class DataLoader:
    """Iterates over batches as tuples of tensors (a single tensor for a single array).

    data        an array, a tuple of arrays of equal length, or a Dataset (a list of samples is one)
    batch_size  samples per batch;  drop_last: leave out a smaller last batch
    shuffle     another order in every epoch, from `seed` (default: that of ss.seed)
    device      where tensors go; default: ss.default_device()

    Each loop over it is an epoch. After load_state_dict() the first loop has what remained of the
    epoch in which the state was taken.
    """

    def __init__(
        self,
        data: Any,
        batch_size: int = 32,
        shuffle: bool = False,
        seed: int | None = None,
        drop_last: bool = False,
        device: str | None = None,
    ) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            fail(
                "value/loader.batch",
                f"batch_size must be a whole number of at least 1, got {batch_size!r}",
                op="DataLoader",
                tensors={},
                hint="DataLoader(data, batch_size=32)",
            )
        if isinstance(data, tuple):
            data = TensorDataset(*data)
        elif isinstance(data, (np.ndarray, Tensor)):
            data = TensorDataset(data)
        if seed is not None and not (isinstance(seed, int) and 0 <= seed < 2**63):
            fail(
                "value/loader.seed",
                f"a seed is a whole number from 0 to 2**63 - 1, got {seed!r}",
                op="DataLoader",
                tensors={},
                hint="DataLoader(data, shuffle=True, seed=0)",
            )
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            fail(
                "type/loader.data",
                f"this is no dataset: {type(data).__name__}",
                op="DataLoader",
                tensors={},
                hint="an array, a tuple of arrays, or an object with __len__ and __getitem__",
            )
        self.data, self.batch_size, self.shuffle, self.drop_last = (
            data,
            batch_size,
            shuffle,
            drop_last,
        )
        self.seed, self.device = seed, device
        self.whole: list[Tensor] | None = None
        self.epoch = 0  # of the next loop
        self.first = 0  # batch of the next loop, after load_state_dict()
        self.place: Place | None = None  # of the newest loop, if it has not ended

    def __len__(self) -> int:
        full, rest = divmod(len(self.data), self.batch_size)
        return full + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        order = self.order() if self.shuffle else None
        place = self.place = Place(self.epoch, self.first, self.random_seed())
        self.epoch, self.first = self.epoch + 1, 0
        for k in range(place.batch, len(self)):
            start, stop = k * self.batch_size, min((k + 1) * self.batch_size, len(self.data))
            batch = self.slices(start, stop) if order is None else self.samples(order[start:stop])
            place.batch = k + 1
            yield batch[0] if len(batch) == 1 else tuple(batch)
        if self.place is place:
            self.place = None

    def random_seed(self) -> int:
        return runtime.random.seed if self.seed is None else self.seed

    def order(self) -> np.ndarray:
        """Which samples the next epoch takes, one after the other, when it is shuffled."""
        generator = np.random.Generator(
            np.random.Philox(key=np.array([self.random_seed(), 2**63 + self.epoch], np.uint64))
        )
        return generator.permutation(len(self.data))

    def state_dict(self) -> dict[str, Any]:
        """Where the newest loop stands, as numbers: the batches before `batch` of `epoch` have been
        handed out. (That is so after a loop that was left early, too.)"""
        place = self.place or Place(self.epoch, self.first, self.random_seed())
        return {**self.settings(), "epoch": place.epoch, "batch": place.batch, "seed": place.seed}

    def settings(self) -> dict[str, Any]:
        """What makes batches of the same samples."""
        return {
            "samples": len(self.data),
            "batch_size": self.batch_size,
            "shuffle": bool(self.shuffle),
            "drop_last": bool(self.drop_last),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on where state_dict() was taken: the next loop has the remaining batches of the same
        epoch, and later ones are shuffled from the same seed. For a loader like the one that was
        saved; if something does not fit, nothing changes."""
        own = self.state_dict()
        if not isinstance(saved, dict) or set(saved) != set(own):
            refuse(f"this is no state of a loader, with {', '.join(own)}")
        odd = [f"{k} {saved[k]}, not {v}" for k, v in self.settings().items() if saved[k] != v]
        if odd:
            refuse(f"it was saved with {'; '.join(odd)}")
        most = {"epoch": 2**62, "batch": len(self), "seed": 2**63 - 1}
        for name, limit in most.items():
            value = saved[name]
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not whole or not 0 <= value <= limit:
                refuse(f"{name} is {value!r}, not a whole number from 0 to {limit}")
        self.epoch, self.first = int(saved["epoch"]), int(saved["batch"])
        self.seed, self.place = int(saved["seed"]), None

    def slices(self, start: int, stop: int) -> list[Tensor]:
        if not isinstance(self.data, TensorDataset):
            return self.samples(range(start, stop))
        if self.whole is None:
            self.whole = [tensor(a, device=self.device) for a in self.data.arrays]
        return [t[start:stop] for t in self.whole]

    def samples(self, places: Sequence[int] | np.ndarray) -> list[Tensor]:
        if isinstance(self.data, TensorDataset):
            return [tensor(a[places], device=self.device) for a in self.data.arrays]
        items = [self.data[int(k)] for k in places]
        items = [i if isinstance(i, tuple) else (i,) for i in items]
        shapes = [[np.shape(part) for part in item] for item in items]
        odd = next((k for k, s in enumerate(shapes) if s != shapes[0]), None)
        if odd is not None:
            fail(
                "shape/loader.samples",
                f"samples {int(places[0])} and {int(places[odd])} have different shapes",
                op="DataLoader",
                tensors={},
                expected=f"{describe(shapes[0])} as in the first, got {describe(shapes[odd])}",
                hint="crop, resize or pad in __getitem__; for arrays, a tuple: DataLoader((x, y))",
            )
        return [
            tensor(np.stack([np.asarray(part) for part in column]), device=self.device)
            for column in zip(*items, strict=True)
        ]


def describe(shapes: list[tuple[int, ...]]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes)


def refuse(what: str) -> NoReturn:
    fail(
        "value/loader.load",
        what,
        op="load_state_dict",
        tensors={},
        hint="a DataLoader of the same data and options as when it was saved",
    )
