"""A runtime directory of the tests' own.

Executors start there at the first request and end on their own.
"""

import os
import tempfile

import numpy as np
import pytest
from processes import end

_directory = tempfile.mkdtemp(prefix="opwire-python-")
os.environ["OPWIRE_RUNTIME_DIR"] = _directory
os.environ.pop("OPWIRE_REGISTRY", None)


def pytest_sessionfinish() -> None:
    end(_directory)


@pytest.fixture(scope="session")
def client():
    import opwire as ow

    return ow.connect()


@pytest.fixture
def rng(request):
    """Another seed in each run, which a failure prints; OPWIRE_SEED repeats one."""
    seed = int(os.environ.get("OPWIRE_SEED", "0")) or int.from_bytes(os.urandom(4), "little")
    print(f"OPWIRE_SEED={seed}")
    return np.random.default_rng(seed)
