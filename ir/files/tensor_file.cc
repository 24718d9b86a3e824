// Checks the places of tensors in the order of the file.
#include "ir/files/tensor_file.h"

#include <algorithm>
#include <unordered_set>

#include "ir/ops/names.h"

namespace opwire {

StatusOr<const FileTensor*> FindTensor(std::span<const FileTensor> tensors, std::string_view name) {
  for (const FileTensor& t : tensors) {
    if (t.name != name) continue;
    if (t.dtype == DType::kInvalid)
      return Unimplemented("tensor {} is of {}, which is no element type or encoding here",
                           Clip(name, kShownName), t.type);
    return &t;
  }
  return NotFound("none of the file's {} tensors is called {}", tensors.size(),
                  Clip(name, kShownName));
}

Status CheckPlaces(std::span<const FileTensor> tensors, int64_t begin, int64_t file_bytes,
                   int64_t alignment, std::string_view format) {
  std::unordered_set<std::string_view> names;
  std::vector<const FileTensor*> order;
  for (const FileTensor& t : tensors) {
    const auto fail = [&](std::string_view what) {
      return InvalidArgument("{}: byte {}: tensor {} {}", format, t.declared,
                             Clip(t.name, kShownName), what);
    };
    if (!names.insert(t.name).second) return fail("is there twice");
    if (t.offset < begin || t.offset > file_bytes || t.bytes > file_bytes - t.offset) {
      return fail(fmt::format("has {} bytes at {}, but the file has tensors from {} to {}", t.bytes,
                              t.offset, begin, file_bytes));
    }
    order.push_back(&t);
  }
  // With equal offsets, tensors without bytes come first: they take no space.
  std::ranges::sort(order, [](const FileTensor* a, const FileTensor* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  int64_t end = begin;
  const FileTensor* before = nullptr;
  for (const FileTensor* t : order) {
    if (t->offset < end) {
      return InvalidArgument("{}: byte {}: tensor {} at {} overlaps {}, which ends at {}", format,
                             t->declared, Clip(t->name, kShownName), t->offset,
                             Clip(before->name, kShownName), end);
    }
    if (t->offset - end >= alignment)
      return InvalidArgument("{}: byte {}: {} bytes before tensor {} belong to none", format, end,
                             t->offset - end, Clip(t->name, kShownName));
    end = t->offset + t->bytes;
    before = t;
  }
  if (file_bytes - end >= alignment)
    return InvalidArgument("{}: byte {}: {} bytes at the end of the file belong to no tensor",
                           format, end, file_bytes - end);
  return absl::OkStatus();
}

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto at = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
    const uint8_t lead = at(i);
    const size_t length = lead < 0x80       ? 1
                          : lead >> 5 == 6  ? 2
                          : lead >> 4 == 14 ? 3
                          : lead >> 3 == 30 ? 4
                                            : 0;
    if (length == 0 || i + length > text.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      if (at(i + k) >> 6 != 2) return false;
      code = code << 6 | (at(i + k) & 0x3fu);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800,
                                   0x10000};  // longer encodings than necessary are invalid
    if (code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += length;
  }
  return true;
}

}  // namespace opwire
