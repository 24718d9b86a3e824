// The keys of objects. There are two levels, as in ccache's direct mode. The unit contains all that
// is known before compiling. The compiler then lists the headers. With the state of their files
// they lead from the unit to the key without compiling again.
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
  std::string unit;  // also with the folder and the names of its headers: a new header may precede
                     // another in the search
};
// NOT_FOUND if a source is not a file.
StatusOr<UnitKey> UnitOf(const ToolchainFacts& facts, const CompileRequest& request);

struct Header {
  std::string path;
  FileStamp stamp;  // all 0 if the file is so new that another change may leave the stamp equal; it
                    // is then read again
  std::string sha256;
};

// Returns the headers as they are now. NOT_FOUND if one is not a file. ABORTED if one changed after
// `begun_ns` (of the real-time clock), when the compilation that listed them began.
StatusOr<std::vector<Header>> ReadHeaders(const std::vector<std::string>& paths, int64_t begun_ns);
// The same files. Reads only those whose stamp differs; `changed`: at least one does. nullopt if
// one no longer exists.
std::optional<std::vector<Header>> Refresh(std::vector<Header> headers, bool& changed);

std::string KeyOf(const UnitKey& unit, const std::vector<Header>& headers);

// One line per header. nullopt if the text is not such a list.
std::string WriteHeaders(const std::vector<Header>& headers);
std::optional<std::vector<Header>> ParseHeaders(std::string_view text);

int64_t RealTimeNs();

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_CACHE_KEY_H_
