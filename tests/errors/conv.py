"""Messages of the layers made of a weight and a bias: convolution and linear."""

import shoestring as ss

TRIGGERS = {
    "shape/conv2d.bias": (
        lambda: ss.conv2d(ss.zeros(1, 3, 8, 8), ss.zeros(1, 3, 3, 3), ss.zeros(5)),
        ["weight gives 1 channels, bias has shape [5]", "bias [1], got [5]", "ss.zeros(1)"],
    ),
    "shape/linear.weight": (
        lambda: ss.linear(ss.zeros(2, 3), ss.zeros(1, 3), ss.zeros(5)),
        ["weight and bias do not belong together", "bias [out_features]", "bias=ss.zeros(1)"],
    ),
}
