// A log's lines, and an ELF file's notes.
#include "tests/conformance/compile/resources.h"

#include <elf.h>
#include <re2/re2.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

namespace opwire::conformance {
namespace {

constexpr uint32_t kMetadataNote = 32;  // NT_AMDGPU_METADATA: MessagePack

// Returns the metadata of the ELF file at the beginning of `elf`.
StatusOr<std::string_view> MetadataOf(std::string_view elf) {
  const auto at = [&](auto& value, uint64_t offset) {
    if (offset > elf.size() || sizeof value > elf.size() - offset) return false;
    std::memcpy(&value, elf.data() + offset, sizeof value);
    return true;
  };
  Elf64_Ehdr header;
  if (!elf.starts_with(ELFMAG) || !at(header, 0))
    return InvalidArgument("the object is no ELF file");
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!at(section, header.e_shoff + static_cast<uint64_t>(i) * sizeof section)) break;
    if (section.sh_type != SHT_NOTE) continue;
    Elf64_Nhdr note;
    const auto padded = [](uint64_t n) { return (n + 3) / 4 * 4; };
    for (uint64_t begin = section.sh_offset;
         begin < section.sh_offset + section.sh_size && at(note, begin);) {
      const uint64_t text = begin + sizeof note + padded(note.n_namesz);
      if (note.n_type == kMetadataNote && text <= elf.size())
        return elf.substr(text, note.n_descsz);
      begin = text + padded(note.n_descsz);
    }
  }
  return InvalidArgument("the object has no metadata");
}

}  // namespace

ResourcesByKernel FromPtxasLog(const std::string& log) {
  static const RE2 kEntry(R"(Compiling entry function '(\w+)')");
  static const RE2 kFrame(
      R"((\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads)");
  static const RE2 kUsed(R"(Used (\d+) registers)"), kShared(R"((\d+) bytes smem)");
  ResourcesByKernel out;
  Resources* kernel = nullptr;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    std::string name;
    if (RE2::PartialMatch(line, kEntry, &name)) kernel = &out[name];
    if (!kernel) continue;
    int stack = 0, stores = 0, loads = 0;
    if (RE2::PartialMatch(line, kFrame, &stack, &stores, &loads)) {
      kernel->stack += stack;  // and of the functions that it calls
      kernel->spill_stores += stores;
      kernel->spill_loads += loads;
    }
    RE2::PartialMatch(line, kUsed, &kernel->registers);
    RE2::PartialMatch(line, kShared, &kernel->shared);
  }
  return out;
}

StatusOr<ResourcesByKernel> FromCodeObject(std::string_view object) {
  // hipRTC's object may be in a bundle, after the host's object.
  object.remove_prefix(std::min(object.find(ELFMAG), object.size()));
  OPWIRE_ASSIGN_OR_RETURN(const std::string_view metadata, MetadataOf(object));
  const nlohmann::json json =
      nlohmann::json::from_msgpack(metadata, /*strict=*/true, /*allow_exceptions=*/false);
  const auto kernels = json.is_object() ? json.find("amdhsa.kernels") : json.end();
  if (!json.is_object() || kernels == json.end())
    return InvalidArgument("the object's metadata names no kernels");
  ResourcesByKernel out;
  for (const nlohmann::json& k : *kernels) {
    const int spilled = 4 * k.value(".vgpr_spill_count", 0);
    out[k.value(".name", "")] = {k.value(".vgpr_count", 0), spilled, spilled,
                                 k.value(".private_segment_fixed_size", 0),
                                 k.value(".group_segment_fixed_size", 0)};
  }
  return out;
}

}  // namespace opwire::conformance
