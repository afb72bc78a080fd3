"""Writes networks.npz: results and gradients of whole networks by PyTorch, which
tests/test_models.py compares ours with.

    pip install torch==2.13.0 numpy
    python tests/golden/write_networks.py

Run once, by hand; the tests never need torch. The networks are written here a second time, as
formulas over a dictionary of arrays, from the papers and torchvision's names. Weights follow from
`value`, so none are stored. Computed in float64, stored as float32. For each case of CASES:

    <case>/logits, <case>/loss    of the batch `images`, with the labels 0, 1, ...
    <case>/grad/<parameter>       the loss's gradient by the first and the last weight
    <case>/<buffer>               running statistics of the first batch normalisation afterwards
"""

from __future__ import annotations

import pathlib

import numpy as np

PATH = pathlib.Path(__file__).with_name("networks.npz")
# name: channels of the first stage, hidden features, classes, side of the images, batch
CASES = {
    "resnet18": (4, 0, 7, 64, 3),
    "resnet18_cifar": (4, 0, 5, 16, 4),
    "vgg11": (4, 256, 5, 32, 3),
}


def value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A parameter: weights of a size that keeps signals alive, the rest near 1 or 0."""
    phase = sum(ord(letter) * (k + 1) for k, letter in enumerate(name)) % 97
    wave = np.sin(np.arange(np.prod(shape)) * 12.9898 + phase).reshape(shape)
    if len(shape) > 1:
        return (wave * np.sqrt(4 / np.prod(shape[1:]))).astype(np.float32)
    centre = 1.0 if name.endswith("weight") else 0.0  # a one-dimensional weight is BatchNorm's
    return (centre + 0.1 * wave).astype(np.float32)


def images(batch: int, side: int) -> np.ndarray:
    return np.cos(np.arange(batch * 3 * side * side) * 0.7391).reshape(batch, 3, side, side)


def main() -> None:
    import torch
    import torch.nn.functional as f

    class Weights(dict):
        """Parameters by name, made when first asked for."""

        def get(self, name, shape):
            if name not in self:
                self[name] = torch.tensor(value(name, shape).astype(np.float64), requires_grad=True)
            return self[name]

    def conv(w, name, x, outputs, kernel, stride=1, bias=False):
        weight = w.get(f"{name}.weight", (outputs, x.shape[1], kernel, kernel))
        b = w.get(f"{name}.bias", (outputs,)) if bias else None
        return f.conv2d(x, weight, b, stride, kernel // 2)

    def norm(w, name, x, running):
        mean = torch.zeros(x.shape[1], dtype=x.dtype)
        variance = torch.ones(x.shape[1], dtype=x.dtype)
        weight, bias = (w.get(f"{name}.{n}", (x.shape[1],)) for n in ("weight", "bias"))
        y = f.batch_norm(x, mean, variance, weight, bias, training=True, momentum=0.1, eps=1e-5)
        running |= {f"{name}.running_mean": mean, f"{name}.running_var": variance}
        return y

    def linear(w, name, x, outputs):
        return f.linear(
            x, w.get(f"{name}.weight", (outputs, x.shape[1])), w.get(f"{name}.bias", (outputs,))
        )

    def resnet(w, x, channels, classes, small, running):
        x = conv(w, "conv1", x, channels, 3 if small else 7, 1 if small else 2)
        x = f.relu(norm(w, "bn1", x, running))
        x = x if small else f.max_pool2d(x, 3, 2, 1)
        for stage in range(4):
            for block in range(2):
                name, outputs = f"layer{stage + 1}.{block}", channels * 2**stage
                stride = 2 if stage and not block else 1
                y = conv(w, f"{name}.conv1", x, outputs, 3, stride)
                y = f.relu(norm(w, f"{name}.bn1", y, running))
                y = norm(w, f"{name}.bn2", conv(w, f"{name}.conv2", y, outputs, 3), running)
                if x.shape != y.shape:
                    x = conv(w, f"{name}.downsample.0", x, outputs, 1, stride)
                    x = norm(w, f"{name}.downsample.1", x, running)
                x = f.relu(x + y)
        return linear(w, "fc", x.mean((2, 3)), classes)

    def vgg(w, x, channels, hidden, classes):
        k = 0
        for plan in (1, "pool", 2, "pool", 4, 4, "pool", 8, 8, "pool", 8, 8, "pool"):
            if plan == "pool":
                x, k = f.max_pool2d(x, 2), k + 1
            else:
                x = f.relu(conv(w, f"features.{k}", x, channels * plan, 3, bias=True))
                k += 2
        x = f.relu(linear(w, "classifier.0", x.flatten(1), hidden))
        x = f.relu(linear(w, "classifier.3", x, hidden))
        return linear(w, "classifier.6", x, classes)

    found = {}
    for name, (channels, hidden, classes, side, batch) in CASES.items():
        w, running = Weights(), {}
        x = torch.tensor(images(batch, side).astype(np.float32).astype(np.float64))
        if name == "vgg11":  # as in evaluation: no dropout
            y = vgg(w, x, channels, hidden, classes)
        else:
            y = resnet(w, x, channels, classes, name.endswith("cifar"), running)
        loss = f.cross_entropy(y, torch.arange(batch) % classes)
        loss.backward()
        weights = [n for n in w if w[n].ndim > 1]
        record = {"logits": y, "loss": loss, "parameters": torch.tensor(len(w))}
        record |= {f"grad/{n}": w[n].grad for n in (weights[0], weights[-1])}
        record |= {n: v for n, v in running.items() if n.startswith("bn1.")}
        for key, tensor in record.items():
            found[f"{name}/{key}"] = tensor.detach().numpy().astype(np.float32)
    np.savez_compressed(PATH, **found)
    print(f"{PATH}: {len(found)} arrays, {PATH.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
