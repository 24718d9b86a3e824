// Reads the notes that the program headers name.
#include "kernels/jit/build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

#include "ir/base/owned_fd.h"

namespace opwire::jit {
namespace {

constexpr size_t kMostHeaders = 256;
constexpr size_t kMostNoteBytes = 1 << 20;
constexpr size_t kNoteAlignment = 4;

bool ReadAt(int fd, uint64_t offset, void* out, size_t bytes) {
  return pread(fd, out, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

size_t Padded(size_t bytes) {
  return (bytes + kNoteAlignment - 1) / kNoteAlignment * kNoteAlignment;
}

// Empty: none of these notes is a build ID.
std::string FindIn(std::string_view notes) {
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data(), sizeof(note));
    notes.remove_prefix(sizeof(note));
    const size_t name = Padded(note.n_namesz);
    if (name > notes.size() || note.n_descsz > notes.size() - name) return "";
    if (note.n_type == NT_GNU_BUILD_ID && notes.starts_with(std::string_view("GNU\0", 4))) {
      std::string hex;
      for (const char c : notes.substr(name, note.n_descsz))
        hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
      return hex;
    }
    notes.remove_prefix(std::min(notes.size(), name + Padded(note.n_descsz)));
  }
  return "";
}

}  // namespace

std::string BuildIdOf(const std::string& path) {
  constexpr unsigned char kOrder =
      std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header;
  if (file.get() < 0 || !ReadAt(file.get(), 0, &header, sizeof(header)) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != kOrder || header.e_phentsize != sizeof(Elf64_Phdr) ||
      header.e_phnum > kMostHeaders)
    return "";
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!ReadAt(file.get(), header.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr)))
    return "";
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNoteBytes) continue;
    std::string notes(segment.p_filesz, '\0');
    if (!ReadAt(file.get(), segment.p_offset, notes.data(), notes.size())) continue;
    if (std::string id = FindIn(notes); !id.empty()) return id;
  }
  return "";
}

}  // namespace opwire::jit
