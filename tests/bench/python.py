"""Measures one side of a row of the Python package, and prints its number.

python3 python.py eager SCALE       microseconds an op of a chain of tiny ones, sent and fetched.
python3 python.py torch SCALE       The same by PyTorch's eager mode.
python3 python.py jit SCALE         Microseconds of a call of a compiled function and of its value.
python3 python.py start SCALE       Seconds from the import to the first array, with no executor.

SCALE is "full", or "small" for a few calls that are not repeated.
"""

import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
from processes import end

what, small = sys.argv[1], sys.argv[2] == "small"
OPS = 20 if small else 1000
ROUNDS = 1 if small else 200  # the best counts: other users of a machine slow some down
CALLS = 5 if small else 2000


def best(measure, rounds):
    return min(measure() for _ in range(rounds))


def must_be(values, number):
    """A wrong value ends the program with an error, which fails the row."""
    first, *others = values if hasattr(values, "__len__") else [values]
    if any(v != number for v in (first, *others)):
        sys.exit(f"wrong result: expected {number}, got {values}")


def chain(ones, value):
    x = ones(16)

    def once():
        begun = time.perf_counter()
        y = x
        for _ in range(OPS):
            y = y + x
        last = value(y)
        took = time.perf_counter() - begun
        must_be(last, OPS + 1)
        return took / OPS * 1e6

    return once


if what == "start":
    os.environ["OPWIRE_RUNTIME_DIR"] = directory = tempfile.mkdtemp(prefix="opwire-start-")
    begun = time.perf_counter()
    import opwire as ow

    x = ow.ones(16)
    print(time.perf_counter() - begun)
    must_be(x.tolist(), 1)
    ow.connect().close()
    end(directory)
elif what == "torch":
    import torch

    torch.set_num_threads(1)
    print(best(chain(torch.ones, lambda y: y[0].item()), ROUNDS))
else:
    import numpy as np
    import opwire as ow

    if what == "eager":
        print(best(chain(ow.ones, np.asarray), ROUNDS))
    else:
        f = ow.jit(lambda a, b: a + b)
        x = ow.ones(16)

        def calls():
            took = []
            for _ in range(CALLS):
                begun = time.perf_counter()
                y = np.asarray(f(x, x))
                took.append(time.perf_counter() - begun)
            must_be(y, 2)
            return sorted(took)[len(took) // 2] * 1e6

        print(best(calls, 1 if small else 3))
