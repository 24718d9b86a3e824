"""The same training in PyTorch, to compare with: the same model, tokens, rates and first weights.

  torch_gpt2.py TEXT [--steps N] [--losses FILE] [--initial DIRECTORY] [--narrow | --wide]
                [--compile MODE] [--layers N] ...

`--initial` reads the weights that `gpt2 --initial` wrote; `--compile` is a mode of torch.compile, or `none`.
"""

import argparse
import math
import os
import time
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional as F

RATE, LEAST, WARM_UP = 6e-4, 0.1, 40


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict(
            {"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)}
        )
        self.mlp = nn.ModuleDict(
            {"fc": nn.Linear(width, 4 * width), "proj": nn.Linear(4 * width, width)}
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, positions, width = x.shape
        heads = [
            t.view(batch, positions, self.heads, width // self.heads).transpose(1, 2)
            for t in self.attn["qkv"](self.ln_1(x)).split(width, dim=2)
        ]
        y = (
            F.scaled_dot_product_attention(*heads, is_causal=True)
            .transpose(1, 2)
            .reshape(batch, positions, width)
        )
        x = x + self.attn["proj"](y)
        return x + self.mlp["proj"](F.gelu(self.mlp["fc"](self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(
        self, layers: int, heads: int, width: int, positions: int, vocabulary: int
    ) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Parameter(torch.empty(positions, width))
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(
                    p, std=0.02 / math.sqrt(2 * layers) if name.endswith("proj.weight") else 0.02
                )
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))


def opwire_name(name: str) -> str:
    return (
        "wte"
        if name == "wte.weight"
        else name.replace("h.", "h", 1)
        if name.startswith("h.")
        else name
    )


class Training:
    """A step of AdamW on the next window of tokens; with masters the optimiser has f32 copies of the weights."""

    def __init__(self, options: argparse.Namespace, device: str = "cuda") -> None:
        torch.manual_seed(1)
        self.options = options
        model = Gpt2(
            options.layers, options.heads, options.width, options.positions, options.vocabulary
        ).to(device)
        if options.initial:
            with torch.no_grad():
                for name, p in model.named_parameters():
                    p.copy_(
                        torch.from_numpy(
                            numpy.load(os.path.join(options.initial, opwire_name(name) + ".npy"))
                        )
                    )
        self.masters = (
            None
            if options.narrow or options.wide
            else [p.detach().clone() for p in model.parameters()]
        )
        self.model = model if options.wide else model.to(torch.bfloat16)
        self.weights = list(self.model.parameters())
        trained = self.masters or self.weights
        groups = [
            {
                "params": [p for p in trained if (p.dim() == 2) == decays],
                "weight_decay": 0.1 if decays else 0.0,
            }
            for decays in (True, False)
        ]
        # The rate is a tensor, so that a new one compiles nothing.
        self.optimizer = torch.optim.AdamW(
            groups, lr=torch.tensor(0.0, device=device), betas=(0.9, 0.95), eps=1e-8, fused=True
        )
        self.loss = (
            self.model
            if options.compile == "none"
            else torch.compile(self.model, mode=options.compile, dynamic=False)
        )

    def step(self, tokens: torch.Tensor, targets: torch.Tensor, rate: float) -> torch.Tensor:
        for group in self.optimizer.param_groups:
            group["lr"].fill_(rate)
        loss = self.loss(tokens, targets)
        loss.backward()
        if self.masters is not None:
            for master, weight in zip(self.masters, self.weights):
                master.grad = weight.grad.float()
        self.optimizer.step()
        if self.masters is not None:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.masters)
        for weight in self.weights:
            weight.grad = None
        return loss.detach()


def rate_of(step: int, steps: int) -> float:
    warm_up = min(WARM_UP, steps // 4 + 1)
    if step < warm_up:
        return RATE * (step + 1) / warm_up
    return RATE * (
        LEAST
        + (1 - LEAST) * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up))) / 2
    )


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser()
    p.add_argument("text")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--losses")
    p.add_argument("--initial")
    p.add_argument("--narrow", action="store_true", help="everything in bf16")
    p.add_argument("--wide", action="store_true", help="everything in f32")
    p.add_argument("--compile", default="max-autotune")
    p.add_argument("--device", default="cuda")
    for name, value in (
        ("layers", 12),
        ("heads", 12),
        ("width", 768),
        ("positions", 1024),
        ("batch", 16),
        ("vocabulary", 50304),
    ):
        p.add_argument("--" + name, type=int, default=value)
    return p.parse_args()


def main() -> None:
    options = parse()
    with open(options.text, "rb") as f:
        tokens = torch.tensor(list(f.read()), dtype=torch.int64, device=options.device)
    window = options.batch * options.positions
    windows = (len(tokens) - 1) // window
    begun = time.perf_counter()
    training = Training(options, options.device)
    on_gpu = options.device == "cuda"
    synchronize: Any = torch.cuda.synchronize if on_gpu else lambda: None
    losses: list[torch.Tensor] = []
    timed = 0, begun
    for step in range(options.steps):
        at = step % windows * window
        x, y = (
            tokens[at : at + window].view(options.batch, options.positions),
            tokens[at + 1 : at + 1 + window],
        )
        losses.append(training.step(x, y, rate_of(step, options.steps)).clone())
        if step == 0:
            synchronize()
            print(f"first step after {time.perf_counter() - begun:.1f} s", flush=True)
        if step == min(20, options.steps // 2):
            synchronize()
            timed = step, time.perf_counter()
        if (step + 1) % 100 == 0 or step + 1 == options.steps:
            synchronize()
            taken = (time.perf_counter() - timed[1]) / max(1, step - timed[0])
            peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else 0
            print(
                f"step {step + 1:5}/{options.steps}  loss {losses[-1].item():.4f}  "
                f"{taken * 1e3:.1f} ms a step, {window / taken:.0f} tokens/s, peak {peak:.2f} GiB",
                flush=True,
            )
    if options.losses:
        with open(options.losses, "w") as f:
            f.writelines(f"{loss.item():.6f}\n" for loss in losses)


if __name__ == "__main__":
    main()
