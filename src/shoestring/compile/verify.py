"""verify: what must hold for every draft, asserted after each pass when SHOESTRING_CHECK=1 and
always in tests."""

from __future__ import annotations

from ..errors import fail
from .draft import Draft


def verify(draft: Draft, after: str) -> None:
    for i, (op, ins) in enumerate(zip(draft.ops, draft.ins, strict=True)):
        require(
            all(0 <= j < len(draft) for j in ins),
            after,
            f"position {i} reads a position that does not exist",
        )
        require(op is not None or not ins, after, f"leaf {i} has inputs")
    list(draft.topological())  # complains where a position depends on itself
    order = getattr(draft, "order", None)
    if order is None:
        return
    require(
        sorted(order) == sorted(draft.steps),
        after,
        "a step is missing from the order, or stands there twice",
    )
    when = {i: k for k, i in enumerate(order)}
    for i in order:
        for j in draft.ins[i]:
            root = draft.root[j]
            maker = (
                root
                if root in when
                else draft.ins[root][0]
                if draft.ops[root] is not None
                else None
            )
            require(
                maker is None or when[maker] < when[i] or maker == i,
                after,
                f"step {i} runs before what it reads",
            )
    for store, home in draft.stores.items():
        if home is None or store in draft.late:
            continue
        for i in order:
            reads = any(draft.root[j] == home for j in draft.ins[i])
            require(
                not reads or when[i] <= when[store],
                after,
                f"step {i} reads a home that is overwritten before",
            )


def require(holds: bool, after: str, what: str) -> None:
    if not holds:
        fail(
            "compile/verify.draft",
            f"the graph is wrong after `{after}`: {what}",
            tensors={},
            hint="this is a bug in a pass; please report it with the program that shows it",
        )
