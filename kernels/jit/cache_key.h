// What an object is kept under. Two levels, as in ccache's direct mode: the unit is all that is
// known before compiling; the headers that the compiler then listed, with what their files were,
// lead from the unit to the key without compiling again.
#ifndef OPWIRE_KERNELS_JIT_CACHE_KEY_H_
#define OPWIRE_KERNELS_JIT_CACHE_KEY_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "kernels/jit/files.h"
#include "kernels/jit/toolchain.h"

namespace opwire::jit {

struct UnitKey {
  std::string content;  // toolchain, architecture, flags, libraries, ABI, our headers, names and
                        // contents of the sources
  std::string unit;     // with the folder and the names of its headers: a new one may come before
                        // another in the search
};
// NOT_FOUND where a source is no file.
StatusOr<UnitKey> UnitOf(const ToolchainFacts& facts, const CompileRequest& request);

struct Header {
  std::string path;
  FileStamp stamp;  // all 0: of a file so new that it could change once more without showing it; it
                    // is read again
  std::string sha256;
};

// The headers as they are now. NOT_FOUND where one is none; ABORTED where one changed after
// `begun_ns` (of the real-time clock), when the compilation that listed them began.
StatusOr<std::vector<Header>> ReadHeaders(const std::vector<std::string>& paths, int64_t begun_ns);
// The same files, reading those alone whose stamp differs; `changed`: some does. None: one is gone.
std::optional<std::vector<Header>> Refresh(std::vector<Header> headers, bool& changed);

std::string KeyOf(const UnitKey& unit, const std::vector<Header>& headers);

// A line a header. None: these bytes are no such list.
std::string WriteHeaders(const std::vector<Header>& headers);
std::optional<std::vector<Header>> ParseHeaders(std::string_view text);

int64_t RealTimeNs();

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_CACHE_KEY_H_
