"""Plots what two trainings lost by step: plot.py OURS TORCH PICTURE; each a file with a number a line."""

import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

ours, theirs = ([float(line) for line in open(name)] for name in sys.argv[1:3])
figure, (whole, apart) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 6), height_ratios=(3, 1))
whole.plot(theirs, color="tab:orange", linewidth=3, label="PyTorch")
whole.plot(ours, color="tab:blue", linewidth=1, label="Opwire")
whole.set_ylabel("cross entropy, nats a byte")
whole.legend()
apart.plot([a - b for a, b in zip(ours, theirs)], color="black", linewidth=0.8)
apart.set_ylabel("difference")
apart.set_xlabel("step")
figure.tight_layout()
figure.savefig(sys.argv[3], dpi=100)
apart_most = max(abs(a - b) for a, b in zip(ours, theirs))
print(
    f"{min(len(ours), len(theirs))} steps; last losses {ours[-1]:.4f} and {theirs[-1]:.4f}; "
    f"largest difference {apart_most:.4f}"
)
