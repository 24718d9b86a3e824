"""The examples' models beside llama.cpp and onnxruntime: what they answer, and how fast, on the same files and threads.

    python tests/bench/models.py accuracy SmolLM2.gguf TEXT.txt
    python tests/bench/models.py speed SmolLM2.gguf
    python tests/bench/models.py search FOLDER TEXT.txt         the folder of all-MiniLM-L6-v2

Needs llama-cpp-python for the first two, and torch, transformers, onnx and onnxruntime for the third. Both sides use the CPUs that the process may run on: `taskset -c 0` for one thread. Sides
take turns; rows show the median of the rounds and the lowest and highest ratio.
"""

import importlib.util
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import opwire as ow

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
THREADS = len(os.sched_getaffinity(0))
ROUNDS = 7
PROMPTS = [
    "What is the capital of France?", "Write a poem about the sea.", "Explain how a steam engine works.", "Who wrote Hamlet?", "Translate to Spanish: good morning.",
    "def fibonacci(n):", "List three fruits that are red.", "Why is the sky blue?", "Once upon a time", "What is 17 + 25?", "Summarise the water cycle.",
    "The quick brown fox", "How do I bake bread?", "Name the planets.", "What does HTTP stand for?", "Tell me a joke.", "In the beginning", "Who was Marie Curie?",
    "Give me advice on how to sleep better.", "What is photosynthesis?",
]  # fmt: skip


def example(folder, name):
    spec = importlib.util.spec_from_file_location(f"example_{folder}_{name}", ROOT / "examples" / folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def row(name, unit, ours, theirs, more=""):
    """Measures both in turn, in seconds, and prints ours, theirs and how many times faster ours is."""
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(ROUNDS)]
    ratios = [b / a for a, b in pairs]
    a, b = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    print(f"{name}_{THREADS}: {a * 1e3:.3f} {unit}, theirs {b * 1e3:.3f}: {statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f}){more and more(a)}", flush=True)


def timed(f):
    began = time.perf_counter()
    f()
    return time.perf_counter() - began


def llama(path, **options):
    from llama_cpp import Llama

    return Llama(str(path), n_ctx=1024, n_batch=512, n_threads=THREADS, n_threads_batch=THREADS, verbose=False, **options)


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def all_logits(model, weights):
    """Logits of all places of a few tokens."""
    c = model.Config.of(weights.metadata)

    @ow.jit(warn=False)
    def run(w, tokens):
        caches = [(ow.zeros((1, c.kv_heads, tokens.shape[1], c.head)),) * 2 for _ in range(c.layers)]
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
    print(f"{name}: {len(agree)} places of {len(texts)} prompts: top-1 agreement {np.mean(agree):.4f}, KL {np.mean(divergence):.2e}", flush=True)


def perplexity(name, ours, theirs, parts):
    def of(logits):
        return -float(np.mean([log_softmax(logits(t))[np.arange(len(t) - 1), t[1:]].mean() for t in parts]))

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
    same = sum(theirs.tokenize(a.encode(), add_bos=False, special=True) == t for a, t in zip(asked, texts))
    tokens = tokenizer.encode(pathlib.Path(text).read_text(encoding="utf-8")[:60000])
    same_text = theirs.tokenize(pathlib.Path(text).read_text(encoding="utf-8")[:60000].encode(), add_bos=False) == tokens
    print(f"tokenizer: {same} of {len(texts)} prompts alike, the text {'too' if same_text else 'not'}")
    parts = [tokens[i : i + 512] for i in range(0, 8 * 512, 512)]
    ours = all_logits(model, weights)
    compare("smollm2_in_blocks", ours, theirs, texts)
    perplexity("smollm2_in_blocks", ours, theirs, parts)
    # Of the same weights as f32, so that neither side rounds what they meet to 8 bits.
    tensors = {n: np.array(a if a.dtype == ow.float32 else ow.dequantize_blocks(a)) for n, a in weights.items()}
    with tempfile.TemporaryDirectory() as folder:
        dense = pathlib.Path(folder) / "dense.gguf"
        dense.write_bytes(model_files.gguf({**weights.metadata, "general.file_type": 0}, tensors))
        ours, theirs = all_logits(model, ow.load(dense)), llama(dense, logits_all=True)
        compare("smollm2_dequantised", ours, theirs, texts)
        perplexity("smollm2_dequantised", ours, theirs, parts[:2])


def speed(path):
    model, weights = example("05_chat", "model"), ow.load(path)
    tokenizer = example("05_chat", "tokenizer").Tokenizer(weights.metadata)
    tokens = tokenizer.encode("In the beginning " * 200)[:512]
    theirs = llama(path)
    m = model.Model(weights, positions=640)
    new = 64

    def decode():
        m.past = 0
        logits = m.read(tokens[:32])
        np.asarray(logits)
        return timed(lambda: m.write(logits, lambda _: None, end=-1, most=new, temperature=0.0)) / new

    def their_decode():
        theirs.reset()
        theirs.eval(tokens[:32])

        def run():
            for _ in range(new):
                theirs.eval([int(theirs.scores[theirs.n_tokens - 1 if theirs._logits_all else 0].argmax())])

        return timed(run) / new

    read = ow.zeros(sum(a.nbytes for a in weights.values()) // 4)
    largest = ow.jit(lambda x: ow.max(x))
    roof = min(timed(lambda: float(largest(read))) for _ in range(20))
    size = read.nbytes
    row("smollm2_decode_cpu", "ms a token", decode, their_decode, lambda a: f"; {size / a / 1e9:.1f} GB/s, {roof / a:.2f} of a read of as many bytes ({size / roof / 1e9:.1f} GB/s)")

    def prefill():
        m.past = 0
        return timed(lambda: np.asarray(m.read(tokens)))

    def their_prefill():
        theirs.reset()
        return timed(lambda: theirs.eval(tokens))

    row("smollm2_prefill_cpu", "ms for 512 tokens", prefill, their_prefill)


def search(folder, text):
    import onnxruntime
    import torch
    from transformers import AutoModel

    lines = [s for s in (line.strip() for line in pathlib.Path(text).read_text(encoding="utf-8").splitlines()) if len(s) > 30]
    chosen = [lines[i] for i in np.random.default_rng(1).choice(len(lines), 256, replace=False)]
    tokenizer = example("06_search", "tokenizer").Tokenizer(os.path.join(folder, "tokenizer.json"))
    sentences = [tokenizer.encode(line) for line in chosen]
    weights, model = ow.load(os.path.join(folder, "model.safetensors")), example("06_search", "model")
    encoders = {"minilm_cpu": model.Encoder(weights), "minilm_bf16_cpu": model.Encoder(weights, dtype=ow.bfloat16)}

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids, attention_mask):
            x = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            there = attention_mask.unsqueeze(-1).float()
            mean = (x * there).sum(1) / there.sum(1)
            return mean / mean.norm(dim=1, keepdim=True)

    with tempfile.TemporaryDirectory() as made:
        path = os.path.join(made, "m.onnx")
        example_inputs = (torch.ones((2, 16), dtype=torch.int64), torch.ones((2, 16), dtype=torch.int64))
        axes = {0: "b", 1: "n"}
        torch.onnx.export(Pooled(), example_inputs, path, input_names=["ids", "mask"], output_names=["y"], dynamic_axes={"ids": axes, "mask": axes, "y": {0: "b"}}, dynamo=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def theirs():
        out = np.empty((len(sentences), 384), np.float32)
        for places, tokens, lengths in encoders["minilm_cpu"].batches(sentences):
            mask = (np.arange(tokens.shape[1]) < lengths[:, None]).astype(np.int64)
            out[places] = session.run(["y"], {"ids": tokens, "mask": mask})[0][: len(places)]
        return out

    reference = theirs().astype(np.float64)
    for name, encoder in encoders.items():
        cosines = (encoder(sentences) * reference).sum(1)
        print(f"{name}: least cosine of {len(sentences)} sentences {cosines.min():.7f}, {max(map(len, sentences))} tokens at the most")
        row(name, "ms for 256 sentences", lambda encoder=encoder: timed(lambda: encoder(sentences)), lambda: timed(theirs))


if __name__ == "__main__":
    {"accuracy": accuracy, "speed": speed, "search": search}[sys.argv[1]](*sys.argv[2:])
