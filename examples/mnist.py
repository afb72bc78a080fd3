"""Train a small convolutional network on MNIST with the public names only, as a plain loop.

python examples/mnist.py [--steps 1000]
"""

import argparse

import numpy as np

import shoestring as ss


class Net(ss.Module):
    def __init__(self):
        self.conv1 = ss.Conv2D(1, 16, 3)
        self.bn1 = ss.BatchNorm2D(16)
        self.conv2 = ss.Conv2D(16, 32, 3)
        self.bn2 = ss.BatchNorm2D(32)
        self.fc = ss.Linear(32 * 5 * 5, 10)

    def forward(self, x):
        x = ss.max_pool2d(ss.relu(self.bn1(self.conv1(x))), 2)
        x = ss.max_pool2d(ss.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(ss.flatten(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="training steps of 32 images")
    steps = parser.parse_args().steps

    ss.seed(0)
    digits = ss.data.mnist()
    images = digits.x_train[:, None].astype(np.float32) / 255
    loader = ss.DataLoader((images, digits.y_train), batch_size=32, shuffle=True, drop_last=True)
    model = Net()
    optimizer = ss.SGD(model.parameters(), lr=0.02, momentum=0.9)
    schedule = ss.optim.CosineDecay(optimizer, steps=steps)

    done = 0
    while done < steps:
        for x, y in loader:
            logits = model(x)
            loss = ss.cross_entropy(logits, y)
            loss.backward()
            ss.clip_grad_norm_(model.parameters(), max_norm=5.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            if done % 100 == 0:
                accuracy = (logits.argmax(axis=1) == y).float().mean()
                print(f"step {done}: loss {loss.item():.4f}, accuracy {accuracy.item():.3f}")
            done += 1
            if done == steps:
                break

    model.eval()
    x_test = ss.tensor(digits.x_test[:, None].astype(np.float32) / 255)
    y_test = ss.tensor(digits.y_test)
    right = 0
    with ss.no_grad():
        for i in range(0, len(x_test), 500):
            found = model(x_test[i : i + 500]).argmax(axis=1)
            right += int((found == y_test[i : i + 500]).sum())
    print(f"test accuracy {100 * right / len(x_test):.2f} %")


if __name__ == "__main__":
    main()
