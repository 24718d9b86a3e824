// Objects that come with an op's folder, for machines without a compiler: PREBUILT/VARIANT-ARCH.so.
// Next to each is a record of the state of the folder that it was built from. `opwire build --all`
// makes them.
#ifndef OPWIRE_KERNELS_JIT_PREBUILT_H_
#define OPWIRE_KERNELS_JIT_PREBUILT_H_

#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "kernels/jit/manifest.h"

namespace opwire::jit {

// The checked object for this architecture, or for the nearest one below it, that was built from
// the folder's present files. nullopt if there is none.
std::optional<std::string> FindPrebuilt(const OpManifest& op, const OpVariantSpec& variant,
                                        const std::string& arch);

// Copies a checked object into the folder.
Status StorePrebuilt(const OpManifest& op, const OpVariantSpec& variant, const std::string& arch,
                     const std::string& object);

// Makes the object unavailable to FindPrebuilt, if this user may write the folder.
void ForgetPrebuilt(const std::string& object);

// "x86-64-v4", "x86-64-v3", "x86-64-v2": architectures that such a processor runs, the widest
// first.
std::vector<std::string> ArchsBelow(const std::string& arch);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_PREBUILT_H_
