/* The C interface of all kernels, built-in or a user's. It includes none of our other headers.
 *
 *   static int Run(const opw_call* c) {
 *     const float* x = (const float*)c->operands[0].data;
 *     float* y = (float*)c->results[0].data;
 *     for (int64_t i = 0; i < c->results[0].elements; ++i) y[i] = 2 * x[i];
 *     return OPW_OK;
 *   }
 *   const opw_kernel kTwice = {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, 0, 0, 0, Run, 0};
 *
 * Rules. A kernel writes only its results and its workspace. Values that a client sent (indices,
 * lengths, targets) are loaded once each and compared unsigned. If one is out of range, the kernel
 * reads 0, skips the write and calls out_of_range. No kernel opens its own parallel region,
 * allocates in `run`, or keeps a pointer after it returns. */
#ifndef OPWIRE_KERNELS_ABI_H_
#define OPWIRE_KERNELS_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPW_ABI_VERSION 1u
#define OPW_MAX_RANK 16

/* Element types: the numbers of opwire::DType. */
enum {
  OPW_F64 = 1,
  OPW_F32 = 2,
  OPW_F16 = 3,
  OPW_BF16 = 4,
  OPW_F8E4M3 = 5,
  OPW_F8E5M2 = 6,
  OPW_I64 = 7,
  OPW_I32 = 8,
  OPW_I16 = 9,
  OPW_I8 = 10,
  OPW_U64 = 11,
  OPW_U32 = 12,
  OPW_U16 = 13,
  OPW_U8 = 14,
  OPW_BOOL = 15
};

/* Results of a kernel's functions. */
enum { OPW_OK = 0, OPW_FAILED = 1 };

/* opw_kernel::flags */
enum {
  OPW_DETERMINISTIC = 1, /* equal bits for equal inputs, whatever the number of threads */
  OPW_CONTIGUOUS = 2, /* all operands and results must be dense row-major; the planner copies those
                         that are not */
  OPW_INPLACE = 4,  /* a result may share storage with an operand of equal type and shape. In lists:
                       with operands at its place. If the op updates its first operand: with that
                       one only */
  OPW_STRIDED = 16, /* equally fast for all tensors whose last axis has stride 1, whatever the
                       other strides: the planner uses such strides if that saves a copy */
  OPW_NO_GRAPH = 8  /* on a device with graphs: its work on the stream cannot be captured, so it is
                       called for each run */
};

/* opw_runtime::raise */
enum { OPW_FLAG_DIVIDE = 1 };

typedef struct opw_tensor {
  void* data;             /* null: an absent operand, or sizes only (supports, prepare) */
  const int64_t* shape;   /* `rank` extents */
  const int64_t* strides; /* in elements; an extent of 1 or a broadcast may have stride 0 */
  int64_t elements;       /* product of the extents */
  uint8_t dtype;          /* 0: an absent operand */
  uint8_t encoding;       /* 0: dense */
  uint8_t rank;
  uint8_t contiguous; /* 1: dense row-major */
  uint8_t packed;     /* 1: its bytes are in the kernel's own order (packed weights); never if the
                         kernel has none */
} opw_tensor;

/* Attributes in the order of the op definition, defaults filled in, dimensions evaluated. */
enum {
  OPW_ATTR_INT = 0,
  OPW_ATTR_FLOAT = 1,
  OPW_ATTR_BYTES = 2,
  OPW_ATTR_INTS = 3,
  OPW_ATTR_FLOATS = 4
};
typedef struct opw_attr {
  int32_t kind;
  int32_t reserved;
  int64_t count; /* of bytes, ints or floats */
  union {
    int64_t i; /* int, bool, dtype, dim */
    double f;
    const char* bytes;   /* string (also ends in 0), blob */
    const int64_t* ints; /* ints, bools, dtypes, dims */
    const double* floats;
  } value;
} opw_attr;

typedef struct opw_runtime opw_runtime;
typedef void (*opw_body)(void* context, int64_t begin, int64_t end);

/* What the executor offers a running kernel. */
struct opw_runtime {
  uint32_t abi_version;
  int32_t threads; /* most threads that parallel_for uses; fixed for a step */
  /* Calls body over disjoint ranges that cover [0, n), each of `grain` iterations except the
   * last, on up to `threads` threads; returns when all ended. Range boundaries depend on n and
   * grain only. Ranges not begun when the run is stopped are skipped. */
  void (*parallel_for)(opw_runtime*, int64_t n, int64_t grain, opw_body body, void* context);
  /* An operand's value at flat position `position` is outside its domain. Any thread; the smallest
   * position is reported. */
  void (*out_of_range)(opw_runtime*, int operand, int64_t position);
  /* Raises OPW_FLAG_*: the run continues and its reply reports the flag. Any thread. */
  void (*raise)(opw_runtime*, uint32_t flags);
};

typedef struct opw_call {
  const opw_tensor* operands; /* lists are flattened; an absent operand has dtype 0 */
  const uint32_t* starts; /* operand i of the op begins at operands[starts[i]]; one past the last
                             at starts[n] */
  const opw_tensor* results;
  const opw_attr* attrs;
  void* state;     /* made by `prepare` */
  void* workspace; /* 64-byte aligned, of the size that `prepare` asked for; contents undefined */
  int64_t workspace_bytes;
  opw_runtime* runtime; /* null in supports; in prepare only its number of threads may be used */
  const void* context;  /* the kernel's own */
} opw_call;

typedef struct opw_kernel {
  uint32_t abi_version;
  uint32_t flags;
  /* Returns null if this call's types, shapes and attributes can run; otherwise a static string
   * that says why not. May be null: all calls can run. */
  const char* (*supports)(const opw_call*);
  /* Called once for each instance (binding of dimensions), off the hot path. Makes *state (released
   * by `release`) and sets the size of the workspace that `run` needs. May be null. */
  int (*prepare)(const opw_call*, void** state, int64_t* workspace_bytes);
  void (*release)(void* state);
  int (*run)(const opw_call*);
  const void* context; /* passed to each call; for kernels that are data, such as programs */
} opw_kernel;

/* A shared library of one kernel exports it:
 *
 *   OPW_KERNEL = {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, 0, 0, 0, Run, 0}; */
#ifdef __cplusplus
#define OPW_KERNEL extern "C" __attribute__((visibility("default"))) const opw_kernel opwire_kernel
#else
#define OPW_KERNEL __attribute__((visibility("default"))) const opw_kernel opwire_kernel
#endif

#ifdef __cplusplus
}
#endif

#endif /* OPWIRE_KERNELS_ABI_H_ */
