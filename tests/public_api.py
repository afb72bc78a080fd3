"""Lists every public name with its signature; tests/public_api.txt is what it was at the last
review.

    python tests/public_api.py --write
"""

import inspect
import pathlib
import sys
import types

PATH = pathlib.Path(__file__).with_name("public_api.txt")


def text():
    import shoestring as ss

    rows = []
    for name in sorted(ss.__all__):
        thing = getattr(ss, name)
        if isinstance(thing, types.ModuleType):
            rows += [f"{name}.{n}" for n in sorted(getattr(thing, "__all__", []))] or [name]
        elif inspect.isclass(thing):
            rows.append(f"class {name}{signature(thing.__init__)}")
            rows += [f"    {name}.{n}{signature(m)}" for n, m in sorted(members(thing).items())]
        else:
            rows.append(f"{name}{signature(thing)}" if callable(thing) else f"{name} = {thing!r}")
    return "\n".join(rows) + "\n"


def members(cls):
    found = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("shoestring"):
            found.update({n: m for n, m in vars(base).items() if not n.startswith("_")})
    return found


def signature(thing):
    try:
        return str(inspect.signature(thing)) if callable(thing) else ""
    except (TypeError, ValueError):
        return ""


if __name__ == "__main__":
    if "--write" in sys.argv:
        PATH.write_text(text())
    else:
        print(text(), end="")
