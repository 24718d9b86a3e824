/* The C interface between an executor and opwire_torch.so, which has all code that is built against
 * libtorch. Neither links the other: the executor opens the module when a call first asks for it
 * (library.h), and refuses one of another version.
 *
 *   const opw_torch_module* m = dlsym(handle, "opwire_torch");
 *   void* session;
 *   if (m->open(&host, &session) == OPW_OK) m->run(session, m->find("softmax"), &call);
 *
 * Memory. ATen's allocations while a call runs come from `allocate`, so they count as the device's
 * memory and are refused at its limit. They are returned through `free` when the call ends, except
 * for those that libtorch keeps. Errors. No exception leaves the module: a function that returns
 * OPW_FAILED has reported the reason through `fail`, on its own thread. */
#ifndef OPWIRE_KERNELS_TORCH_INTERFACE_H_
#define OPWIRE_KERNELS_TORCH_INTERFACE_H_

#include "kernels/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. Changes with any change of it. */
#define OPW_TORCH_VERSION 1u

/* The executor's functions for a device that it has bound. Outlives the session. */
typedef struct opw_torch_host {
  void* context;    /* the first argument of each function */
  const char* kind; /* "cpu" or "cuda" */
  int32_t index;    /* of the device */
  int32_t reserved;
  /* At least 64-byte aligned. Null: refused, and `why` says so. Any thread. */
  void* (*allocate)(void* context, int64_t bytes, char* why, int64_t why_bytes);
  void (*free)(void* context, void* memory);
  /* The driver's stream that work is put on; null on a cpu. */
  void* (*stream)(void* context);
  /* Reports why the function that runs on this thread fails: a code of absl::StatusCode, and a
   * message. */
  void (*fail)(void* context, int32_t code, const char* message);
} opw_torch_host;

/* The module exports this as `opwire_torch`. */
typedef struct opw_torch_module {
  uint32_t version;      /* OPW_TORCH_VERSION */
  uint32_t abi_version;  /* OPW_ABI_VERSION */
  const char* built_for; /* the version of torch whose headers it was built with: "2.11.0" */
  /* A session for a device. Fails if the loaded libtorch is of another version, or does not
   * support the device. */
  int (*open)(const opw_torch_host* host, void** session);
  /* REQUIRES: no call of the session runs. */
  void (*close)(void* session);
  /* The number of the row of an op, for `run`; -1: there is no row. */
  int32_t (*find)(const char* op);
  /* Runs a call, which must be one that the row supports (torch_ops.h). Puts work on the stream; on
   * a cpu the work is done on return. */
  int (*run)(void* session, int32_t row, const opw_call* call);
} opw_torch_module;

#ifdef __cplusplus
}
#endif

#endif /* OPWIRE_KERNELS_TORCH_INTERFACE_H_ */
