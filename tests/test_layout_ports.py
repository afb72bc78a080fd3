"""Every op on every layout, where its inputs are results of an earlier plan; alone, and where the
compiler computes something inside its kernel or its result inside another: every launch is compared
with its reference on the operands as they lie."""

import numpy as np
import pytest
from test_every_op import CASES

from shoestring import runtime
from shoestring.backends.device import device as open_device
from shoestring.ir import F, leaf
from shoestring.runtime.inspection import Sample
from shoestring.tensor import wrap
from shoestring.testing import LAYOUTS, distance, laid_out, reference

CASES = [c for c in CASES if c.values[0].kind != "effect"]


@pytest.fixture(autouse=True)
def every_launch(monkeypatch):
    monkeypatch.setattr(Sample, "share", 1.0)


def upload(array):
    return leaf(open_device("cpu").upload(array), device="cpu")


def number(value):
    return leaf(np.array(value, np.float32))


def computed(node):
    """The same values as the result of a kernel."""
    if node.dtype.name not in ("float32", "int64", "int32"):
        return node
    return F.mul(node, leaf(np.asarray(1, node.dtype)))


def placed(array, layout):
    """(a handle that keeps its memory alive, a result of a plan that lies in this layout)"""
    axes, wide = tuple(reversed(range(array.ndim))), laid_out(array, "spread").base
    if layout == "transposed":
        whole = computed(upload(array.T))
        return whole, F.transpose(whole, axes=axes)
    if layout == "reversed":
        whole = computed(upload(array[(..., *[slice(None, None, -1)] * array.ndim)]))
        return whole, F.flip(whole, axes=tuple(range(array.ndim)))
    if layout == "spread" and array.ndim:
        whole = computed(upload(wide))
        return whole, F.slice(whole, index=tuple((1, 2 * n + 1, 2) for n in array.shape))
    if layout == "repeated" and array.ndim and len(array):
        whole = computed(upload(array[:1]))
        return whole, F.expand(whole, to=array.shape)
    whole = computed(upload(array))
    return whole, F.alias(whole)


def realised(arrays, layout):
    """One known node per array, results of one plan; and their arrays."""
    found = [placed(a, layout) for a in arrays]
    runtime.flush([n for pair in found for n in pair])
    return [view for _, view in found]


def value(node):
    return wrap(node).numpy()


def close(got, want, allowed):
    return distance(got, np.asarray(want)) <= allowed


@pytest.mark.parametrize(("cls", "case"), CASES)
def test_on_results_in_every_layout(cls, case):
    op = cls(**case.attributes)
    arrays = case.inputs()
    for layout in ("", *LAYOUTS):
        laid = [laid_out(a, layout) if layout else a for a in arrays]
        xs = realised(arrays, layout)
        for x, a in zip(xs, laid, strict=True):
            assert np.array_equal(value(x), a)
        ys = getattr(F, cls.name)(*xs, **case.attributes)
        ys = ys if isinstance(ys, tuple) else (ys,)
        runtime.flush(ys)
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in laid]
        for y, want in zip(ys, reference(op, wide), strict=True):
            assert close(value(y), want, op.tolerance(*[a.shape for a in laid])), layout


def floats(nodes):
    return [k for k, x in enumerate(nodes) if x.dtype == np.float32]


def one(ys):
    """The first float result of an op, or None."""
    ys = ys if isinstance(ys, tuple) else (ys,)
    return next((y for y in ys if y.dtype == np.float32), None)


def before(build, xs, layout):
    """Each float input is computed, inside where the kernel can."""
    for k in floats(xs):
        more = list(xs)
        more[k] = F.mul(F.neg(xs[k]), number(-1))
        yield one(build(*more))


def behind(build, xs, layout):
    """Elementwise steps follow the result, with an operand of the result's shape in that layout;
    then a sum of them."""
    y = one(build(*xs))
    if y is not None:
        (other,) = realised([np.full(y.shape, 0.5, np.float32)], layout)
        yield F.relu(F.add(F.mul(y, number(2)), other))
        for axes in {(), (0,), tuple(range(1, len(y.shape))), tuple(range(len(y.shape)))}:
            if y.shape and axes:
                z = F.mul(one(build(*xs)), other)
                yield F.sum(z, axes=axes, keepdims=False)


def beside(build, xs, layout):
    """Each float input is summed too."""
    for k in floats(xs):
        for axes in {(0,), tuple(range(len(xs[k].shape) - 1)), (0, 2, 3)}:
            if axes and max(axes) < len(xs[k].shape):
                yield F.sum(xs[k], axes=axes, keepdims=False), one(build(*xs))


@pytest.mark.parametrize("port", [before, behind, beside])
@pytest.mark.parametrize(("cls", "case"), CASES)
def test_with_programs_inside(cls, case, port):
    """The same results fused and not; each launch is compared with its reference besides."""
    if cls.kind == "check":
        return

    def build(*xs):
        return getattr(F, cls.name)(*xs, **case.attributes)

    for layout in ("", *LAYOUTS):
        xs = realised(case.inputs(), layout)

        def results(fused, xs=xs, layout=layout):
            runtime.session.fuse = fused
            found = []
            try:
                for made in port(build, xs, layout):
                    nodes = [n for n in (made if isinstance(made, tuple) else (made,)) if n]
                    runtime.flush(nodes)
                    found += [value(n) for n in nodes]
            finally:
                runtime.session.fuse = True
            return found

        with np.errstate(all="ignore"):
            for got, want in zip(results(True), results(False), strict=True):
                assert close(got, want, 1e-4), (layout, got, want)
