"""Every plan of the networks is what golden/plans.txt says (see golden/write_plans.py).

A change of the compiler that means to change plans commits the new table, and says why in its
message.
"""

import os
import pathlib
import subprocess
import sys

import pytest
from golden.write_plans import COLUMNS, GROUPS, line, plans, stored

import shoestring as ss
from shoestring.backends.device import FACTORIES
from shoestring.runtime import session

pytestmark = pytest.mark.skipif("cpu" not in FACTORIES, reason="plans of the CPU device")
WRITE = "python tests/golden/write_plans.py"


def rows_of(group):
    session.check = False  # verified elsewhere, on networks that take less time
    return {name: line(name, plan) for name, plan in plans(group)}


def differences(found, expected):
    """What is not as it was, in words."""
    gone = [f"{name}: there is no such plan" for name in expected if name not in found]
    return gone + [
        f"{name}: {column} was {was}, is {now}"
        for name in found
        for column, was, now in zip(
            COLUMNS, expected.get(name, [""] * len(COLUMNS)), found[name], strict=True
        )
        if was != now
    ]


@pytest.mark.parametrize("group", GROUPS)
def test_plans_are_what_they_were(group):
    expected = {n: row for n, row in stored().items() if n.partition(":")[0] == group}
    changed = differences(rows_of(group), expected)
    assert not changed, "\n".join([*changed, f"if that is meant: {WRITE}; to compare: --full"])


def test_no_plan_is_stored_that_nobody_makes():
    assert {name.partition(":")[0] for name in stored()} == set(GROUPS)


def test_a_change_is_named():
    rows = stored()
    name = next(iter(rows))
    other = {**rows, name: [*rows[name][:-1], "0" * 12]}
    assert differences(rows, rows) == []
    assert differences(other, rows) == [f"{name}: memory was {rows[name][-1]}, is {'0' * 12}"]
    assert differences({}, {name: rows[name]}) == [f"{name}: there is no such plan"]


def test_plans_do_not_depend_on_threads_and_instruction_sets():
    from shoestring.backends.cpu import _native as native

    before, found = (ss.threads(), native.isa()), []
    try:
        for count, isa in ((1, native.isas()[0]), (3, native.isas()[-1])):
            ss.set_threads(count)
            native.set_isa(isa)
            found.append(rows_of("layers"))
    finally:
        ss.set_threads(before[0])
        native.set_isa(before[1])
    assert found[0] == found[1]


def test_plans_do_not_depend_on_the_order_of_sets():
    """Sets of strings and objects have another order in every process."""
    folder = pathlib.Path(__file__).parent
    code = (
        "from golden.write_plans import line, plans\n"
        "for name, plan in plans('layers'): print('\\t'.join(line(name, plan)))"
    )
    expected = [row for name, row in stored().items() if name.startswith("layers:")]
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
            env=dict(os.environ, PYTHONHASHSEED=seed),
        )
        assert [row.split("\t") for row in done.stdout.splitlines()] == expected
