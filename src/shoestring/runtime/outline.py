"""Planning without the memory: a device is replaced by its outline while a block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..backends.device import DEVICES, TURN, Device, device
from ..backends.outline import OutlinedDevice
from .arena import ARENAS
from .devices import default_device
from .flush import compact
from .limits import memory_limit
from .session import DIRTY, PLANS, session


@contextmanager
def outlined(name: str | None = None) -> Iterator[Device]:
    """Within the block the device `name` (default: the default device) is an outline, and the
    default: networks are made without drawing weights, compiled steps can be planned, nothing takes
    memory and nothing runs. No memory limit is in force. Yields the outline. Other threads must not
    make tensors meanwhile.

        with ss.runtime.outlined():
            model = ss.models.build("vgg11")
            plan = ss.compile(lambda x: model(x)).plan(ss.zeros(1, 3, 224, 224))
    """
    before, name = default_device(), name or default_device()
    real = device(name)
    with TURN:
        compact()  # what is pending belongs to the real device
        plans, handles, arena = dict(PLANS), list(session.handles), ARENAS.pop(name, None)
        others = {s: owner for s, owner in DIRTY.items() if owner is not session.thread}
        PLANS.clear()
        DEVICES[name] = outline = OutlinedDevice(real)
        try:
            default_device(name)
            with memory_limit(None):
                yield outline
        finally:
            DEVICES[name] = real
            default_device(before)
            PLANS.clear()  # what was made meanwhile belongs to the outline
            PLANS.update(plans)
            session.handles[:] = handles
            ARENAS.update({} if arena is None else {name: arena})
            DIRTY.clear()
            DIRTY.update(others)
            session.settle = False
