"""Train a small network on the UCI handwritten digits, in numpy: some seconds on one CPU core.

It has the parameters that a search is about, reports its accuracy after every epoch, and can be
interrupted at any train step.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hpcflow import runtime

Array = NDArray[np.float64]

DEFAULTS = {
    "epochs": 30,
    "lr": 0.1,
    "momentum": 0.0,
    "hidden": 64,
    "activation": "relu",
    "batch_size": 64,
    "seed": 0,
    "pause_s": 0.0,  # after each epoch, as if there were more to compute
}


class Network:
    """One hidden layer; its weights are kept in a folder of a checkpoint."""

    def __init__(self, hidden: int, activation: str, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.activation = activation
        self.weights: list[Array] = [
            random.normal(0, np.sqrt(2 / 64), (64, hidden)),
            np.zeros(hidden),
            random.normal(0, np.sqrt(1 / hidden), (hidden, 10)),
            np.zeros(10),
        ]
        self.velocity: list[Array] = [np.zeros_like(each) for each in self.weights]

    def save(self, folder: Path) -> None:
        with (folder / "weights.npz").open("wb") as file:
            np.savez(file, *self.weights, *self.velocity)

    def load(self, folder: Path) -> None:
        with np.load(folder / "weights.npz", allow_pickle=False) as saved:
            arrays = [saved[f"arr_{index}"] for index in range(8)]
        self.weights, self.velocity = arrays[:4], arrays[4:]

    def forward(self, images: Array) -> tuple[Array, Array]:
        """The hidden layer, (n, hidden), and the probability of each digit, (n, 10)."""
        first, first_bias, second, second_bias = self.weights
        inner = images @ first + first_bias
        inner = np.maximum(inner, 0) if self.activation == "relu" else np.tanh(inner)
        scores = inner @ second + second_bias
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return inner, scores / scores.sum(axis=1, keepdims=True)

    def train_step(self, images: Array, digits: NDArray[np.int64], lr: float, keep: float) -> float:
        """One step of gradient descent with momentum; returns the mean loss before it."""
        inner, guess = self.forward(images)
        rows = np.arange(len(digits))
        loss = -np.log(guess[rows, digits] + 1e-12).mean()
        error = guess
        error[rows, digits] -= 1
        error /= len(digits)
        slope = (inner > 0) if self.activation == "relu" else 1 - inner**2
        back = (error @ self.weights[2].T) * slope
        gradients = [images.T @ back, back.sum(axis=0), inner.T @ error, error.sum(axis=0)]
        for weight, velocity, gradient in zip(self.weights, self.velocity, gradients, strict=True):
            velocity *= keep
            velocity -= lr * gradient
            weight += velocity
        return float(loss)


def read_digits() -> tuple[Array, NDArray[np.int64]]:
    """1,797 images of 8 by 8, (n, 64) from 0 to 1, and their digits, (n,)."""
    found = find_spec("sklearn")  # to import it takes longer than some trainings
    if found is None or found.origin is None:
        raise SystemExit("the digits are part of scikit-learn: pip install scikit-learn")
    path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",")
    return table[:, :64] / 16, table[:, 64].astype(np.int64)


def main() -> None:
    run = runtime.start(DEFAULTS)
    params = run.params
    images, digits = read_digits()
    order = np.random.default_rng(0).permutation(len(digits))
    train, held_out = order[:1437], order[1437:]
    network = Network(params.hidden, params.activation, params.seed)
    run.restore(network=network)

    per_epoch = -(-len(train) // params.batch_size)
    for step in run.train_steps(params.epochs * per_epoch):
        epoch, batch = divmod(step - 1, per_epoch)
        shuffled = np.random.default_rng([params.seed, epoch]).permutation(train)
        chosen = shuffled[batch * params.batch_size : (batch + 1) * params.batch_size]
        loss = network.train_step(images[chosen], digits[chosen], params.lr, params.momentum)
        if batch == per_epoch - 1:
            time.sleep(params.pause_s)
            run.log(loss=loss, accuracy=accuracy(network, images[held_out], digits[held_out]))
    final = accuracy(network, images[held_out], digits[held_out])
    run.finish(accuracy=final)
    print(f"{run.train_step} train steps, accuracy {final:.4f} on held-out digits")


def accuracy(network: Network, images: Array, digits: NDArray[np.int64]) -> float:
    """Share of the images whose digit is the most probable one."""
    _, guess = network.forward(images)
    return float((guess.argmax(axis=1) == digits).mean())


if __name__ == "__main__":
    main()
