"""Trains a small network on real handwritten digits, in Python: one request that tells its loss while it runs.

    python examples/04_python/train.py [--steps 2000] [--device cpu] [--plot loss.png]

Without --plot the loss is drawn on the terminal as it comes.
"""

import argparse
import pathlib
import sys
import time
from typing import TypeAlias

import numpy as np
import opwire as ow

DATA = pathlib.Path(__file__).parents[1] / "data"
BATCH = 64
Weights: TypeAlias = dict[str, ow.Array]


def forward(w: Weights, x: ow.Array) -> ow.Array:
    return ow.relu(x @ w["1"] + w["b1"]) @ w["2"] + w["b2"]


def loss_of(w: Weights, x: ow.Array, labels: ow.Array) -> ow.Array:
    return ow.cross_entropy(forward(w, x), labels)


@ow.jit
def train(w: Weights, images: ow.Array, labels: ow.Array, order: ow.Array) -> Weights:
    """As many steps of stochastic gradient descent with momentum as `order` has rows of a batch's places."""

    def step(i: ow.Array, state: tuple[Weights, Weights]) -> tuple[Weights, Weights]:
        w, velocity = state
        chosen = ow.take(order, i, axis=0)
        x = ow.take(images, chosen, axis=0).astype(ow.float32) / 16.0
        loss, g = ow.value_and_grad(loss_of)(w, x, ow.take(labels, chosen, axis=0))
        ow.emit("loss", loss)
        velocity = {k: 0.9 * velocity[k] + g[k] for k in w}
        return {k: w[k] - 0.05 * velocity[k] for k in w}, velocity

    still = {k: ow.zeros_like(v) for k, v in w.items()}
    trained: tuple[Weights, Weights] = ow.for_loop(order.shape[0], step, (w, still))
    return trained[0]


def draw(losses: list[float], total: int) -> None:
    """A line of the terminal: how far, the mean of the last losses, and their course in eight heights."""
    blocks = "▁▂▃▄▅▆▇█"
    cut = np.array_split(np.array(losses), min(len(losses), 60))
    means = np.array([c.mean() for c in cut])
    heights = np.clip(means / means.max() * 7.99, 0, 7).astype(int)
    sys.stdout.write(
        f"\r{len(losses):5}/{total}  loss {means[-1]:.4f}  {''.join(blocks[h] for h in heights)}"
    )
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument(
        "--device", default=None, help="as opwire devices names it; the first accelerator otherwise"
    )
    parser.add_argument("--plot", default=None, help="a picture to write (needs matplotlib)")
    args = parser.parse_args()
    device = ow.device(args.device)
    rng = np.random.default_rng(1)
    images, labels = np.load(DATA / "digits.npy"), np.load(DATA / "labels.npy").astype(np.int64)
    split = 1500
    order = np.stack([rng.choice(split, BATCH, replace=False) for _ in range(args.steps)])
    with device:
        initial = {
            "1": rng.normal(0, 0.1, (64, 64)),
            "b1": np.zeros(64),
            "2": rng.normal(0, 0.1, (64, 10)),
            "b2": np.zeros(10),
        }
        w = {k: ow.asarray(v.astype(np.float32)) for k, v in initial.items()}
        losses: list[float] = []
        begun = time.perf_counter()

        def heard(_: str, value: ow.Array) -> None:
            losses.append(float(value))
            if args.plot is None and len(losses) % max(args.steps // 40, 1) == 0:
                draw(losses, args.steps)

        w = train.run(w, ow.asarray(images), ow.asarray(labels), ow.asarray(order), on_emit=heard)
        took = time.perf_counter() - begun
        digit = ow.argmax(forward(w, ow.asarray(images[split:]).astype(ow.float32) / 16.0), axis=-1)
        right = float((digit == ow.asarray(labels[split:])).astype(ow.float32).mean())
    print(
        f"\n{args.steps} steps on {device} in {took:.2f} s; {100 * right:.1f} % of {len(images) - split} unseen digits are right"
    )
    if args.plot:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        pyplot.plot(losses)
        pyplot.xlabel("step")
        pyplot.ylabel("loss")
        pyplot.savefig(args.plot)
    return 0 if right > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
