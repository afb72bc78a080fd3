"""The networks: parameters, results and gradients against PyTorch's (see golden/write_networks.py),
options."""

import importlib.util
import itertools
import pathlib

import numpy as np
import pytest

import shoestring as ss
from shoestring.errors import ArgumentError

HERE = pathlib.Path(__file__).parent / "golden"
spec = importlib.util.spec_from_file_location("write_networks", HERE / "write_networks.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

with np.load(HERE / "networks.npz", allow_pickle=False) as file:
    GOLDEN = {key: file[key] for key in file.files}


def count(network):
    return sum(p.size for p in network.parameters())


@pytest.mark.parametrize(
    "name,options,parameters",
    [
        ("mnist_cnn", {}, 12_906),
        ("mlp", {}, 669_706),
        ("resnet18", {}, 11_689_512),
        ("resnet18", dict(depth=(3, 4, 6, 3)), 21_797_672),  # torchvision's resnet34
        ("resnet18", dict(classes=10), 11_689_512 - 990 * 513),
        ("resnet18_cifar", {}, 11_173_962),
    ],
)
def test_parameters_are_as_many_as_torchvision_s(name, options, parameters):
    assert count(ss.models.build(name, **options)) == parameters


def test_vgg11_has_torchvision_s_parameters():
    """Without making all 132,863,336: of a quarter of the width, from the formula, which gives the
    published number at full width."""

    def formula(channels, hidden, classes=1000, image=224):
        widths = [3, *[channels * k for k in (1, 2, 4, 4, 8, 8, 8, 8)]]
        convolutions = sum(b * (9 * a + 1) for a, b in itertools.pairwise(widths))
        sizes = [8 * channels * (image // 32) ** 2, hidden, hidden, classes]
        return convolutions + sum(b * (a + 1) for a, b in itertools.pairwise(sizes))

    assert formula(64, 4096) == 132_863_336
    assert count(ss.models.build("vgg11", width=0.25)) == formula(16, 1024)


@pytest.mark.parametrize("name", golden.CASES)
def test_results_and_gradients_are_pytorch_s(name):
    channels, hidden, classes, side, batch = golden.CASES[name]
    network = ss.models.build(name, width=channels / 64, classes=classes, image=side)
    for path, p in network.named_parameters():
        p.assign(golden.value(path, p.shape))
    if name == "vgg11":
        network.eval()
        assert network.classifier[0].weight.shape[0] == hidden
    x = ss.tensor(golden.images(batch, side).astype(np.float32))
    logits = network(x)
    loss = ss.cross_entropy(logits, ss.tensor(np.arange(batch) % classes))
    loss.backward()
    expected = {k.partition("/")[2]: v for k, v in GOLDEN.items() if k.startswith(name + "/")}
    assert expected.pop("parameters") == len(network.parameters())
    variables = dict(network.named_variables())
    for key, want in expected.items():
        if key in ("logits", "loss"):
            found = {"logits": logits, "loss": loss}[key]
        elif key.startswith("grad/"):
            found = variables[key.removeprefix("grad/")].grad
        else:
            found = variables[key]
        error = np.abs(found.numpy() - want).max() / np.abs(want).max()
        assert found.shape == want.shape and error < 2e-4, (key, error)


@pytest.mark.parametrize("name", ss.models.MODELS)
def test_width_depth_classes_and_image_can_be_chosen(name):
    image = {"vgg11": 32, "resnet18": 32}.get(name, 12)
    network = ss.models.build(name, width=0.07, classes=3, image=image)
    x = ss.zeros(*ss.models.input_shape(name, 2, image))
    assert network(x).shape == (2, 3)
    assert count(network) < count(ss.models.build(name, width=0.14, classes=3, image=image))
    stages = len(ss.models.recipe(name).depth)
    if stages:
        deeper = ss.models.build(name, width=0.07, depth=3, classes=3, image=image)
        assert deeper(x).shape == (2, 3) and count(deeper) > count(network)
        same = ss.models.build(name, width=0.07, depth=[3] * stages, classes=3, image=image)
        assert count(same) == count(deeper)


@pytest.mark.parametrize(
    "options,message",
    [
        (dict(width=0), "width: a number above 0"),
        (dict(width="wide"), "width='wide'"),
        (dict(depth=(2, 2)), "depth: 5 whole numbers"),
        (dict(depth=0), "depth=0"),
        (dict(depth="deep"), "depth='deep'"),
        (dict(depth=2.5), "depth=2.5"),
        (dict(classes=0), "classes: at least 1"),
        (dict(image=31), "image: at least 32"),
        (dict(image=64.0), "image=64.0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ArgumentError) as caught:
        ss.models.build("vgg11", **options)
    assert message in str(caught.value) and "try:  build('vgg11', " in str(caught.value)


def test_a_network_of_one_depth_says_so():
    with pytest.raises(ArgumentError, match="None: it has one depth"):
        ss.models.build("mnist_cnn", depth=3)
