"""A random walk over everything that a compiled step can read, compiled against plain."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import Scaled, X, value

import shoestring as ss
from shoestring.errors import StaleGraphError


class World:
    """State of all the kinds above, a step that reads it, and changes."""

    def __init__(self):
        ss.seed(0)
        self.net, self.t, self.k, self.items = Scaled(), ss.tensor([1.0, 2.0]), 1.0, [1.0, 2]
        self.table = np.array([1.0, 2.0], np.float32)
        self.optimizer = ss.SGD(self.net.parameters(), lr=0.1)
        self.drop = ss.Dropout(0.5)
        k, items, t, net, table, drop = self.k, self.items, self.t, self.net, self.table, self.drop
        optimizer = self.optimizer

        def step(x, rate, options):
            y = drop(net(x)) * k + t * items[0] + table[0] * rate
            if options["train"] and y.requires_grad:
                y.sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            if options["write"]:
                x[0] = items[1]
            return (y if options["graph"] else y.detach()), x.sum()

        def set_k(new):
            nonlocal k
            k = new

        def set_t(new):
            nonlocal t
            t = ss.tensor([float(new), 2.0])

        def add_t(new):
            nonlocal t
            t += new

        self.step = step
        self.changes = [
            set_k,
            set_t,
            add_t,
            lambda v: items.__setitem__(0, v),
            lambda v: items.__setitem__(1, v),
            lambda v: table.fill(v),
            lambda v: setattr(net, "slope", v),
            lambda v: setattr(net, "extra", None if v < 0 else v),
            lambda v: setattr(net, "name", "one" if v < 0 else "two"),
            lambda v: net.layers.append(ss.Tanh()),
            lambda v: len(net.layers) > 1 and net.layers.pop(),
            lambda v: net.layers.reverse(),
            lambda v: net.parts.__setitem__("a", ss.Tanh() if v < 0 else ss.ReLU()),
            lambda v: setattr(drop, "p", 0.25 if v < 0 else 0.5),
            lambda v: drop.train(v > 0),
            lambda v: setattr(optimizer, "lr", abs(v)),
            lambda v: setattr(optimizer, "momentum", 0.9 if v > 0 else 0.0),
            lambda v: setattr(optimizer, "weight_decay", 0.1 if v > 0 else 0.0),
            lambda v: (
                setattr(net.layers[0], "bias", None)
                if isinstance(net.layers[0], ss.Linear)
                else None
            ),
        ]

    def run(self, step, rate, train, write, graph):
        x = ss.tensor(X)
        y, total = step(x, rate, {"train": train, "write": write, "graph": graph})
        found = [value((y, total, x))]
        if graph and y.requires_grad:
            try:
                (y * y).sum().backward()
            except StaleGraphError:
                found.append("stale")
        for p in self.net.parameters():
            found += [p.tolist(), p.grad is not None and p.grad.tolist()]
            p.grad = None
        return found


moves = st.lists(
    st.tuples(
        st.integers(0, 18),
        st.sampled_from([-1.0, 0.5, 2, 3.0]),
        st.sampled_from([0.1, 0.2, 1.0]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    min_size=3,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(moves)
def test_a_walk_over_changes(walk):
    plain, other = World(), World()
    compiled = ss.compile(other.step)
    for which, new, rate, train, write, graph in walk:
        for world in (plain, other):
            world.changes[which](new)
        results = []
        for world, step in ((plain, plain.step), (other, compiled)):
            ss.seed(7)
            results.append(world.run(step, rate, train, write, graph))
        assert results[0] == results[1]
