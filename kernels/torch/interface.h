/* The C interface between an executor and opwire_torch.so, which holds all that is built against
 * libtorch. Neither links the other: the executor opens the module when a call first asks for it
 * (library.h), and refuses one of another version.
 *
 *   const opw_torch_module* m = dlsym(handle, "opwire_torch");
 *   void* session;
 *   if (m->open(&host, &session) == OPW_OK) m->run(session, m->find("softmax"), &call);
 *
 * Memory. What ATen allocates while a call runs comes from `allocate`, so that it counts in the
 * device's memory and is refused at its limit; it goes back through `free` when the call ends, but
 * for what libtorch keeps for itself. Errors. No exception leaves the module: a function that
 * returns OPW_FAILED has said why by `fail`, on its own thread. */
#ifndef OPWIRE_KERNELS_TORCH_INTERFACE_H_
#define OPWIRE_KERNELS_TORCH_INTERFACE_H_

#include "kernels/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. Changes with any change of it. */
#define OPW_TORCH_VERSION 1u

/* What an executor offers for a device that it has bound. Outlives the session. */
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
  /* Why the function that runs on this thread fails: a code of absl::StatusCode, and a message. */
  void (*fail)(void* context, int32_t code, const char* message);
} opw_torch_host;

/* What the module exports as `opwire_torch`. */
typedef struct opw_torch_module {
  uint32_t version;      /* OPW_TORCH_VERSION */
  uint32_t abi_version;  /* OPW_ABI_VERSION */
  const char* built_for; /* the version of torch whose headers it was built with: "2.11.0" */
  /* A session for a device. Fails where the libtorch that was loaded is of another version, or has
   * nothing for the device. */
  int (*open)(const opw_torch_host* host, void** session);
  /* REQUIRES: no call of it runs. */
  void (*close)(void* session);
  /* The number by which `run` knows a row; -1: there is none. */
  int32_t (*find)(const char* op);
  /* Runs a call, which must be one that the row supports (rows.h). Puts work on the stream; on a
   * cpu it is done on return. */
  int (*run)(void* session, int32_t row, const opw_call* call);
} opw_torch_module;

#ifdef __cplusplus
}
#endif

#endif /* OPWIRE_KERNELS_TORCH_INTERFACE_H_ */
