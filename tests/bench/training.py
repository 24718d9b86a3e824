"""PyTorch's side of the rows of training.

Prints the microseconds that a step of examples/02_loop takes in eager mode, with the best number of
threads.

python3 training.py BATCH STEPS
"""

import os
import sys
import time

import torch


def microseconds(batch, steps, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    images = torch.randint(0, 17, (1797, 64), dtype=torch.uint8)
    labels = torch.randint(0, 10, (1797,))
    order = torch.randint(0, 1797, (steps * batch,))
    weights = [
        torch.randn(64, 64).mul_(0.1),
        torch.zeros(64),
        torch.randn(64, 10).mul_(0.1),
        torch.zeros(10),
    ]
    for w in weights:
        w.requires_grad_(True)
    w1, b1, w2, b2 = weights
    optimiser = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        for step in range(steps):
            chosen = order[step * batch : (step + 1) * batch]
            x = images[chosen].to(torch.float32) * 0.0625
            logits = torch.relu(x @ w1 + b1) @ w2 + b2
            loss = torch.nn.functional.cross_entropy(logits, labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            for group in optimiser.param_groups:
                group["lr"] = 0.1 - step * 1e-5
            optimiser.step()
        best = min(best, (time.perf_counter() - begun) / steps * 1e6)
    return best


threads = sorted({1, len(os.sched_getaffinity(0))})
print(min(microseconds(int(sys.argv[1]), int(sys.argv[2]), n) for n in threads))
