"""Arrays on accelerators that live in other processes.

    import numpy as np, opwire as ow
    x = ow.asarray(np.random.rand(1024, 64).astype("float32"))
    y = ow.softmax(x @ ow.ones((64, 10)), axis=-1)
    np.asarray(y)

The functions here are those of the Array API standard (2024.12, without complex numbers), and some of PyTorch's names for neural networks.
"""

from ._array import Array, asarray, from_dlpack
from ._client import Client, Device, connect, device, devices
from ._control import cond, emit, for_loop, while_loop
from ._core import (
    bfloat16,
    bool,
    dtype,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    q4_0,
    q4_1,
    q6_k,
    q8_0,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ._creation import arange, empty, empty_like, eye, full, full_like, linspace, meshgrid, ones, ones_like, tril, triu, zeros, zeros_like
from ._dtypes import __array_namespace_info__, _dtype_named, astype, can_cast, finfo, iinfo, isdtype, result_type
from ._elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    erf,
    exp,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    positive,
    pow,
    reciprocal,
    remainder,
    round,
    rsqrt,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
    where,
)
from ._files import Weights, load
from ._jit import Function, grad, jit, value_and_grad
from ._manipulation import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from ._nn import (
    cross_entropy,
    dequantize_blocks,
    dropout,
    embedding,
    gelu,
    kv_append,
    kv_attention,
    layer_norm,
    linear,
    log_softmax,
    one_hot,
    quantized_embedding,
    quantized_linear,
    relu,
    rms_norm,
    rotary_embedding,
    scaled_dot_product_attention,
    sigmoid,
    silu,
    softmax,
)
from ._products import matmul, matrix_transpose, tensordot, vecdot
from ._reductions import (
    all,
    any,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from ._searching import (
    argmax,
    argmin,
    argsort,
    isin,
    nonzero,
    searchsorted,
    sort,
    take,
    take_along_axis,
    topk,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from . import linalg, random

e = 2.718281828459045
pi = 3.141592653589793
inf = float("inf")
nan = float("nan")
newaxis = None

__array_api_version__ = "2024.12"
__version__ = "0.1.0"
