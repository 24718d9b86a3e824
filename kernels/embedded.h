// Files that cmake's opwire_embed embeds in this program as text.
#ifndef OPWIRE_KERNELS_EMBEDDED_H_
#define OPWIRE_KERNELS_EMBEDDED_H_

#include <span>
#include <string_view>

namespace opwire {

struct EmbeddedFile {
  std::string_view path;  // from the top of the sources: "kernels/abi.h"
  std::string_view text;
};

// The interface of compiled code, as of the build of this program: <opwire/FILE>.
std::span<const EmbeddedFile> CompiledHeaders();
inline std::string_view AbiHeader() {
  return CompiledHeaders()[0].text;
}  // <opwire/abi.h>, the host compiler's
inline std::string_view GpuHeader() {
  return CompiledHeaders()[1].text;
}  // <opwire/gpu.h>, the only one that the RTC compilers see

// Sources of our GPU code: units include each other by these paths (kernels/ops/gpu/code.h).
std::span<const EmbeddedFile> GpuSources();

// Parts of units of fused code, in the order in which they are written into one
// (kernels/fused/source.h).
std::span<const EmbeddedFile> FusedHeaders();

}  // namespace opwire

#endif  // OPWIRE_KERNELS_EMBEDDED_H_
