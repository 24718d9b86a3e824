// NVRTC or hipRTC, loaded into this process. Only the worker does that.
#ifndef OPWIRE_KERNELS_JIT_RTC_LIBRARY_H_
#define OPWIRE_KERNELS_JIT_RTC_LIBRARY_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace opwire::jit {

struct RtcLibraryFacts {
  std::string path, version, identity;     // as in ToolchainFacts
  std::vector<std::string> architectures;  // empty: the library does not report them
};

class RtcLibrary {
 public:
  // `kind`: "nvrtc" or "hiprtc". NOT_FOUND with every place that was searched and the error there.
  static StatusOr<std::unique_ptr<RtcLibrary>> Load(std::string_view kind);
  virtual ~RtcLibrary() = default;

  virtual const RtcLibraryFacts& facts() const = 0;
  // Returns the object, and the log in `log`. INVALID_ARGUMENT if the unit does not compile or a
  // flag is unknown; RESOURCE_EXHAUSTED if memory is short.
  virtual StatusOr<std::string> Compile(const std::string& name, const std::string& arch,
                                        const std::string& text,
                                        const std::vector<std::string>& flags,
                                        std::string& log) = 0;
};

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_RTC_LIBRARY_H_
