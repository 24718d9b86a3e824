"""PyTorch's side of the GPU rows. Each line on standard input is a request for a row, in JSON. Each
line on standard output is an answer.

  {"row": "add_65536x512", "op": "add", "type": "bf16", "shape": [65536, 512], "precision": "ieee", "compiled": true,
   "sets": 2, "launches": 20, "seconds": 0.05}
  {"seconds": 4.7e-05, "by": "torch.compile"}                # of one launch; or {"error": "..."}

The first line is {"ready": "PyTorch 2.11.0"}, or {"error": "..."} if PyTorch is not available. The
graphs of a row are made at its first request, and kept until the request for another row. After the
first answer only the faster of eager mode and torch.compile is measured.
"""

import gc
import json
import os
import sys
import time


def operands_of(torch, request, device):
    """One set of random operands."""
    dtype = {
        "bf16": torch.bfloat16,
        "f16": torch.float16,
        "f32": torch.float32,
        "f8e4m3": torch.float8_e4m3fn,
    }[request["type"]]
    op, shape = request["op"], request["shape"]

    def make(*extents):
        return torch.rand(extents, device=device, dtype=torch.float32).mul_(2).sub_(1).to(dtype)

    if op == "matmul":
        m, n, k = shape
        return make(m, k), make(k, n)
    if op == "scaled_matmul":
        m, n, k = shape
        one = torch.ones((), device=device)
        return make(m, k), make(n, k).t(), one, one
    if op == "linear":
        m, n, k = shape
        return make(m, k), make(n, k)
    if op in ("linear_gelu_tanh", "linear_gelu", "linear_silu"):
        m, n, k = shape
        return make(m, k), make(n, k), make(n)
    if op == "gelu_add_layer_norm":
        m, n, k = shape
        return make(m, k), make(n, k), make(n), make(m, n), make(n), make(n)
    if op == "rms_norm_linear":
        m, n, k = shape
        return make(m, k), make(k), make(n, k)
    if op.startswith("linear_cross_entropy"):
        rows, depth, classes = shape
        return (
            make(rows, depth),
            make(classes, depth),
            torch.zeros(rows, device=device, dtype=torch.int64),
        )
    if op.startswith("attention"):
        batch, heads, key_heads, length, depth, _ = shape
        queries = 1 if op == "attention_decode" else length
        query, key, value = (
            make(batch, heads, queries, depth),
            make(batch, key_heads, length, depth),
            make(batch, key_heads, length, depth),
        )
        return (query, key, value) + (
            (make(batch, heads, length, depth),) if op == "attention_backward" else ()
        )
    if op.startswith("convolution"):
        batch, channels, out, kernel, stride, extent = shape
        result = (extent + 2 * (kernel // 2) - kernel) // stride + 1
        operands = make(batch, channels, extent, extent), make(out, channels, kernel, kernel)
        return (
            (make(batch, out, result, result),) if op == "convolution_backward" else ()
        ) + operands
    if op.startswith("embedding_backward"):
        tokens, width, vocabulary = shape
        some = 100 if op.endswith("_text") else vocabulary  # few rows have most of the tokens
        spread = torch.rand(tokens, device=device).pow_(2 if op.endswith("_text") else 1)
        return (
            make(tokens, width),
            spread.mul_(some).to(torch.int32).clamp_(max=vocabulary - 1),
            vocabulary,
        )
    rows, columns = shape
    if op == "layer_norm_backward":
        x = make(rows, columns)
        mean, deviation = (
            x.float().mean(1, keepdim=True),
            x.float().var(1, keepdim=True, unbiased=False).add_(1e-5).rsqrt_(),
        )
        return make(rows, columns), x, mean, deviation, make(columns), make(columns)
    if op in ("add", "swiglu"):
        return make(rows, columns), make(rows, columns)
    if op == "rms_norm":
        return make(rows, columns), make(columns)
    if op == "layer_norm":
        return make(rows, columns), make(columns), make(columns)
    if op == "adamw":
        return (
            make(rows, columns),
            make(rows, columns),
            make(rows, columns),
            make(rows, columns).square_(),
            torch.ones((), device=device),
        )
    return (make(rows, columns),)


def functions(torch):
    f = torch.nn.functional
    return {
        "add": lambda x, y: x + y,
        "gelu": lambda x: f.gelu(x),
        "swiglu": lambda x, y: f.silu(x) * y,
        "rms_norm": lambda x, w: f.rms_norm(x, w.shape, w, 1e-5),
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm_backward": lambda g, x, mean, scale, w, b: (
            torch.ops.aten.native_layer_norm_backward(
                g, x, w.shape, mean, scale, w, b, [True, True, True]
            )
        ),
        "embedding_backward_text": lambda g, index, rows: torch.ops.aten.embedding_dense_backward(
            g, index, rows, -1, False
        ),
        "embedding_backward_uniform": lambda g, index, rows: (
            torch.ops.aten.embedding_dense_backward(g, index, rows, -1, False)
        ),
        "layer_norm": lambda x, w, b: f.layer_norm(x, w.shape, w, b, 1e-5),
        "adamw": lambda p, g, m, v, step: torch._fused_adamw_(
            [p],
            [g],
            [m],
            [v],
            [],
            [step],
            lr=1e-3,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.01,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        ),
        "transpose": lambda x: x.t().contiguous(),
        "sum_rows": lambda x: x.sum(1),
        "sum_columns": lambda x: x.sum(0),
        "matmul": lambda x, y: torch.matmul(x, y),
        "scaled_matmul": lambda x, y, scale_x, scale_y: torch._scaled_mm(
            x, y, scale_x, scale_y, out_dtype=torch.bfloat16
        ),
        "linear": lambda x, w: f.linear(x, w),
        "linear_gelu_tanh": lambda x, w, b: f.gelu(f.linear(x, w, b), approximate="tanh"),
        "linear_gelu": lambda x, w, b: f.gelu(f.linear(x, w, b)),
        "linear_silu": lambda x, w, b: f.silu(f.linear(x, w, b)),
        "gelu_add_layer_norm": lambda x, w, b, residual, scale, shift: f.layer_norm(
            f.gelu(f.linear(x, w, b)) + residual, scale.shape, scale, shift, 1e-5
        ),
        "rms_norm_linear": lambda x, norm_w, w: f.linear(
            f.rms_norm(x, norm_w.shape, norm_w, 1e-5), w
        ),
        "linear_cross_entropy": lambda x, w, target: f.cross_entropy(f.linear(x, w), target),
    }


def step_of(torch, loss):
    """The loss and its gradients with respect to the first two operands."""

    def step(x, w, target):
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_(), w.detach().requires_grad_()]
            return torch.autograd.grad(loss(*leaves, target), leaves)

    return step


def attention_ways(torch, request):
    """Two functions for each backend of PyTorch's.

    The first runs once for a set of operands. The second is measured, with the results of the
    first.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    causal, backward = bool(request["shape"][5]), request["op"] == "attention_backward"

    def ways_of(backend):
        def attend(query, key, value):
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    query, key, value, is_causal=causal, enable_gqa=True
                )

        def attend_first(query, key, value, grad):
            with torch.enable_grad():
                leaves = [t.requires_grad_() for t in (query, key, value)]
                return attend(*leaves), leaves, grad

        def gradients(output, leaves, grad):
            return torch.autograd.grad(output, leaves, grad, retain_graph=True)

        return (attend_first, gradients) if backward else (lambda *operands: operands, attend)

    return {
        "PyTorch's " + name: ways_of(getattr(SDPBackend, name.upper() + "_ATTENTION"))
        for name in ("cudnn", "flash")
    }


def convolution(torch, request):
    """PyTorch's op of this request. cuDNN searches for its fastest kernel at the first run."""
    kernel, stride = request["shape"][3:5]
    how = [stride] * 2, [kernel // 2] * 2, [1] * 2, False, [0] * 2, 1
    torch.backends.cudnn.benchmark = True
    if request["op"] == "convolution":
        return lambda x, w: torch.ops.aten.convolution(x, w, None, *how)
    return lambda grad, x, w: torch.ops.aten.convolution_backward(
        grad, x, w, None, *how, [True, True, False]
    )


class Recorded:
    """Launches over the sets of operands in turn, with as many results alive.

    They are recorded as a graph. `long` ones, which use autograd, run one by one without a graph.
    """

    def __init__(self, torch, prepare, f, sets, launches, seconds, long=False):
        self.torch, self.launches, self.replays = torch, launches, 1
        self.sets, self.results = [prepare(*s) for s in sets], [None] * len(sets)

        def all_launches():
            for i in range(launches):
                self.results[i % len(sets)] = f(*self.sets[i % len(sets)])

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(torch.cuda.current_stream() if long else side):
            for _ in range(3):
                f(*self.sets[0])
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.all_launches = all_launches
        if not long:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                all_launches()
            self.all_launches = graph.replay
        self.replay(2)
        while True:
            taken = self.replay(self.replays)
            if taken >= seconds:
                break
            self.replays = max(
                self.replays + 1, int(1.1 * self.replays * seconds / max(taken, 1e-7))
            )

    def replay(self, times):
        self.torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(times):
            self.all_launches()
        self.torch.cuda.synchronize()
        return time.perf_counter() - begun

    def seconds(self):
        self.replay(1)
        return self.replay(self.replays) / self.replays / self.launches


class PreparedRow:
    def __init__(self, torch, request, device):
        torch.set_float32_matmul_precision("high" if request["precision"] == "tf32" else "highest")
        torch.compiler.reset()
        sets = [operands_of(torch, request, device) for _ in range(request["sets"])]
        if request["op"].startswith("attention"):
            ways = attention_ways(torch, request)
        else:
            step = request["op"].endswith("_step")
            f = (
                convolution(torch, request)
                if request["op"].startswith("convolution")
                else functions(torch)[request["op"].removesuffix("_step")]
            )

            def as_it_is(*operands):
                return operands

            finish = (lambda loss: step_of(torch, loss)) if step else (lambda same: same)
            ways = {"PyTorch": (as_it_is, finish(f))}
            if request["compiled"]:
                ways["torch.compile"] = (as_it_is, finish(torch.compile(f, dynamic=False)))
        self.recorded, failed = {}, None
        with torch.no_grad():
            for name, (prepare, way) in ways.items():
                try:
                    self.recorded[name] = Recorded(
                        torch,
                        prepare,
                        way,
                        sets,
                        request["launches"],
                        request["seconds"],
                        request["op"] in ("attention_backward", "linear_cross_entropy_step"),
                    )
                except Exception as e:  # the other may run
                    failed = e
        if not self.recorded:
            raise failed
        self.row = request["row"]

    def measure(self):
        taken = {name: r.seconds() for name, r in self.recorded.items()}
        best = min(taken, key=taken.get)
        self.recorded = {best: self.recorded[best]}
        return {"seconds": taken[best], "by": best}


class Gpt2Row:
    """Steps of examples/03_gpt2/torch_gpt2.py on random tokens, everything in bf16.

    They use torch.compile's mode for the most speed.
    """

    STEPS = 10

    def __init__(self, torch, request, device):
        import argparse
        import importlib.util

        path = os.path.join(
            os.path.dirname(os.path.abspath(__file__)), "../../../examples/03_gpt2/torch_gpt2.py"
        )
        spec = importlib.util.spec_from_file_location("torch_gpt2", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        batch, positions, layers, heads, width, vocabulary = request["shape"]
        torch.compiler.reset()
        torch.cuda.reset_peak_memory_stats()
        self.torch, self.row, self.shape = torch, request["row"], (batch, positions)
        self.training = module.Training(
            argparse.Namespace(
                batch=batch,
                positions=positions,
                layers=layers,
                heads=heads,
                width=width,
                vocabulary=vocabulary,
                narrow=True,
                wide=False,
                initial=None,
                compile="max-autotune",
            ),
            device,
        )
        self.tokens = torch.randint(vocabulary, (batch * positions + 1,), device=device)
        self.steps(3)

    def steps(self, count):
        for _ in range(count):
            self.training.step(self.tokens[:-1].view(self.shape), self.tokens[1:], 1e-4)
        self.torch.cuda.synchronize()

    def measure(self):
        begun = time.perf_counter()
        self.steps(self.STEPS)
        return {
            "seconds": (time.perf_counter() - begun) / self.STEPS,
            "by": "torch.compile, max-autotune",
            "peak_bytes": self.torch.cuda.max_memory_allocated(),
        }


class DecodeRow:
    """A plain decoder of Llama's form with static caches that generates one token after another.

    It is compiled with max-autotune. A step is captured as one graph, which picks the likeliest
    token.
    """

    def __init__(self, torch, request, device):
        from torch.nn import functional as F

        (
            layers,
            heads,
            kv_heads,
            head,
            width,
            inner,
            vocabulary,
            positions,
            self.past,
            self.tokens,
            tied,
        ) = request["shape"]
        torch.compiler.reset()
        kind = torch.bfloat16

        def normal(*shape, std=0.02):
            return torch.empty(shape, dtype=kind, device=device).normal_(0, std)

        embedding = normal(vocabulary, width)
        output = embedding if tied else normal(vocabulary, width)
        blocks = [
            {
                "attn_norm": normal(width),
                "ffn_norm": normal(width),
                "q": normal(heads * head, width),
                "k": normal(kv_heads * head, width),
                "v": normal(kv_heads * head, width),
                "o": normal(width, heads * head),
                "gate": normal(inner, width),
                "up": normal(inner, width),
                "down": normal(width, inner),
                "keys": normal(1, kv_heads, positions, head, std=1),
                "values": normal(1, kv_heads, positions, head, std=1),
            }
            for _ in range(layers)
        ]
        norm_weight = normal(width)
        frequencies = 1e5 ** (-torch.arange(0, head, 2, device=device, dtype=torch.float32) / head)
        places = torch.arange(positions, device=device)

        def norm(x, weight):
            return F.rms_norm(x, (width,), weight, 1e-5)

        def turn(x, cosine, sine):
            a, b = x.float().chunk(2, -1)
            return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(kind)

        def step(token, at):
            x = F.embedding(token, embedding)
            angle = at.float() * frequencies
            cosine, sine, seen = angle.cos(), angle.sin(), (places <= at).view(1, 1, 1, -1)
            for b in blocks:
                h = norm(x, b["attn_norm"])
                q = turn(F.linear(h, b["q"]).view(1, 1, heads, head).transpose(1, 2), cosine, sine)
                k = turn(
                    F.linear(h, b["k"]).view(1, 1, kv_heads, head).transpose(1, 2), cosine, sine
                )
                v = F.linear(h, b["v"]).view(1, 1, kv_heads, head).transpose(1, 2)
                b["keys"].index_copy_(2, at, k)
                b["values"].index_copy_(2, at, v)
                y = F.scaled_dot_product_attention(
                    q, b["keys"], b["values"], attn_mask=seen, enable_gqa=True
                )
                x = x + F.linear(y.transpose(1, 2).reshape(1, 1, heads * head), b["o"])
                h = norm(x, b["ffn_norm"])
                x = x + F.linear(F.silu(F.linear(h, b["gate"])) * F.linear(h, b["up"]), b["down"])
            return F.linear(norm(x, norm_weight), output).argmax(-1)

        self.torch, self.row = torch, request["row"]
        self.token, self.at = (
            torch.zeros((1, 1), dtype=torch.int64, device=device),
            torch.zeros(1, dtype=torch.int64, device=device),
        )
        compiled = torch.compile(step, mode="max-autotune-no-cudagraphs", dynamic=False)

        def one():
            self.token.copy_(compiled(self.token, self.at))
            self.at.add_(1)

        with torch.no_grad():
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    one()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                one()

    def measure(self):
        self.at.fill_(self.past)
        self.torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(self.tokens):
            self.graph.replay()
        self.torch.cuda.synchronize()
        return {
            "seconds": (time.perf_counter() - begun) / self.tokens,
            "by": "torch.compile, max-autotune, one graph a token",
        }


def main():
    # Text that libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(value):
        answers.write(json.dumps(value) + "\n")

    try:
        import torch

        device = torch.device(sys.argv[1])
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        torch.cuda.set_device(device)
        torch.empty(1, device=device)
    except Exception as e:
        return answer({"error": f"{type(e).__name__}: {e}"})
    answer({"ready": f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}"})
    prepared = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if prepared is None or prepared.row != request["row"]:
                prepared = None
                gc.collect()
                torch.cuda.empty_cache()
                prepared = {"gpt2_step": Gpt2Row, "decode": DecodeRow}.get(
                    request["op"], PreparedRow
                )(torch, request, device)
            answer(prepared.measure())
        except Exception as e:
            lines = str(e).strip().splitlines()
            answer({"error": f"{type(e).__name__}: {lines[0] if lines else ''}"})


if __name__ == "__main__":
    main()
