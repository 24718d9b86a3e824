// A folder that defines an op: op.json and the files that it names, read and checked before any of
// them is compiled.
//
//   {
//     "name": "gelu_bias",                                 // programs call it user.gelu_bias
//     "doc": "gelu of x + bias.",
//     "signature": "x: T[M, N], bias: T[N] -> y: T[M, N]", // ir/ops/declaration.h
//     "types": {"T": ["f32", "f64"]},
//     "attributes": {"approximate": {"type": "bool", "default": false, "doc": "By tanh."}},
//     "indices": {},  // operand: the extent that its values are positions in
//     "reference": "reference.opw",  // a program of the same parameters; it may name T
//     "variants": {
//       "simd": {
//         "backend": "cpu",                                // or a list of cpu, cuda, hip
//         "sources": ["gelu_bias.cc"], "headers": [],
//         "flags": ["-funroll-loops"],
//         "arch_flags": {"x86-64-v4": ["-mprefer-vector-width=512"]},
//         "libraries": [], "min_arch": {"cuda": "sm_80"},
//         "priority": 0, "deterministic": true
//       },
//       "gpu": {
//         "backend": ["cuda", "hip"], "sources": ["gelu_bias.cu"],
//         // or a list of them, in order
//         "launch": {"function": "GeluBias<T>", "threads": 256, "blocks": "(M * N + 255) / 256",
//             "shared": 0},
//         "workspace": 0
//       }
//     },
//     // in addition to the cases that `opwire build` generates
//     "tests": [{"M": 3, "N": 17, "attributes": {"approximate": true}}],
//     "bench": {"M": 1024, "N": 1024},
//     "tolerance": {"f32": 1e-5}  // of an element, relative to max(1, |reference|)
//   }
#ifndef OPWIRE_KERNELS_JIT_MANIFEST_H_
#define OPWIRE_KERNELS_JIT_MANIFEST_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/ops/declaration.h"
#include "kernels/jit/toolchain.h"

namespace opwire::jit {

inline constexpr std::string_view kManifestName = "op.json";

// One launch of a GPU variant: the device function that every thread calls, and the number of
// threads. Numbers are formulas (ir/ops/extents.h) over the signature's extents, "leading" for the
// product of those that "..." stands for, and attributes of kind int.
struct LaunchSpec {
  std::string function;  // "GeluBias<T>", with names of the manifest's "types"
  std::string blocks[3] = {"1", "1", "1"};
  int threads = 256;         // per block, along x; a multiple of 64
  std::string shared = "0";  // bytes of dynamic shared memory per block
};

struct OpVariantSpec {
  std::string name;
  std::vector<std::string> backends;
  std::vector<std::string> sources, headers;  // files of the folder; one source for cuda and hip
  std::vector<std::string> flags;
  std::map<std::string, std::vector<std::string>> arch_flags;  // by architecture
  std::vector<std::string> libraries;
  std::map<std::string, std::string> min_arch;  // by backend
  int priority = 0;
  bool deterministic = true;
  std::vector<LaunchSpec> launches;  // cuda and hip
  std::string workspace = "0";       // bytes that the launches share

  // "emu" runs variants for cuda or hip.
  bool Serves(std::string_view backend) const;
  // The backends that it is built for if kernels run on `own`: its own list, and the emulator if
  // `own` is the emulator.
  std::vector<std::string> BackendsFor(std::string_view own) const;
};

// Extents by name, and attributes that are not at their defaults. "..." stands for leading extents.
struct OpCase {
  std::map<std::string, int64_t> extents;
  std::vector<int64_t> leading;
  std::vector<NamedAttr> attrs;
};

struct OpManifest {
  std::string folder;  // absolute
  OpDeclaration declaration;
  OpDef row;
  std::string reference;  // the program's text
  std::string digest;     // SHA-256, hex, of manifest and reference
  std::vector<OpVariantSpec> variants;
  std::vector<OpCase> tests;
  OpCase bench;
  std::map<DType, double> tolerance;

  const std::string& name() const { return declaration.name; }
};

// INVALID_ARGUMENT names the error in the manifest, NOT_FOUND the missing file. PERMISSION_DENIED
// names a file's owner, or the users that may write it: no file of a folder that another user may
// change is used. Messages begin with the file's path.
StatusOr<OpManifest> ReadManifest(const std::string& folder);

// Returns `directory` itself if it has a manifest, otherwise the folders in it that have one, by
// name. NOT_FOUND if there is no such directory.
StatusOr<std::vector<std::string>> OpFolders(const std::string& directory);

// Names that the formulas of GPU variants may use: the signature's extents in its order, then
// attributes of kind int.
inline constexpr std::string_view kLeadingExtent = "leading";
StatusOr<std::vector<std::string>> FormulaNames(const OpManifest& op);

// The compilation for a backend and architecture. REQUIRES: the variant serves the backend.
StatusOr<CompileRequest> RequestFor(const OpManifest& op, const OpVariantSpec& variant,
                                    std::string_view backend, const std::string& arch);

// Why an architecture is below another of the same backend ("needs x86-64-v4"); empty: it is not.
std::string BelowArch(const std::string& arch, const std::string& least);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_MANIFEST_H_
