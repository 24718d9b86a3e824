// Objects that come with an op's folder, for machines without a compiler: PREBUILT/VARIANT-ARCH.so,
// each beside a record of the state of the folder that it was built from. They are made by `opwire
// build --all`.
#ifndef OPWIRE_KERNELS_JIT_PREBUILT_H_
#define OPWIRE_KERNELS_JIT_PREBUILT_H_

#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "kernels/jit/manifest.h"

namespace opwire::jit {

// The object for this architecture or the nearest below it that was built from the folder's files
// as they are now, and checked; none: there is no such one.
std::optional<std::string> FindPrebuilt(const OpManifest& op, const OpVariantSpec& variant,
                                        const std::string& arch);

// Copies an object that was checked into the folder.
Status StorePrebuilt(const OpManifest& op, const OpVariantSpec& variant, const std::string& arch,
                     const std::string& object);

// The object is not found again, where this user may write the folder.
void ForgetPrebuilt(const std::string& object);

// "x86-64-v4", "x86-64-v3", "x86-64-v2": what a processor of this architecture runs, the widest
// first.
std::vector<std::string> ArchsBelow(const std::string& arch);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_PREBUILT_H_
