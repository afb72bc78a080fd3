"""Modules, optimisers, loaders and files: what their own tests add to networks.py."""

import tempfile

import numpy as np

import shoestring as ss


class Growing:
    def __len__(self):
        return 4

    def __getitem__(self, k):
        return np.ones(k + 1, np.float32)


TRIGGERS = {
    "value/loader.load": (
        lambda: ss.DataLoader(np.zeros(4)).load_state_dict({"epoch": 3}),
        ["no state of a loader", "of the same data and options"],
    ),
    "shape/loader.samples": (
        lambda: list(ss.DataLoader(Growing(), 2)),
        ["samples 0 and 1 have different shapes", "[1] as in the first, got [2]", "pad"],
    ),
    "type/parameters.thing": (lambda: ss.parameters(5), ["no parameters in a int"]),
    "type/load.arguments": (
        lambda: ss.load(ss.Linear(2, 2), "w.npz"),
        ["loads from a path, into a Module, got Linear and str", 'ss.load("weights.npz", into='],
    ),
    "type/save.arguments": (
        lambda: ss.save("w.npz", ss.Linear(2, 2)),
        ["save: what is saved comes first, then where", "try:  ss.save(model, 'w.npz')"],
    ),
    "type/save.name": (
        lambda: ss.save({0: np.ones(1)}, tempfile.mkdtemp() + "/w.npz"),
        ["names of arrays are strings", "got 0", "ss.save({'0': ...}, path)"],
    ),
    "type/save.value": (
        lambda: ss.save({"a": {"b": 1}}, tempfile.mkdtemp() + "/w.npz"),
        ["a is no array of numbers but dict", "ss.save(model, path)"],
    ),
    "value/loader.seed": (lambda: ss.DataLoader(np.zeros(4), seed=-1), ["2**63 - 1, got -1"]),
}
