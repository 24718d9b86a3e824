// First bytes of files, and what people have instead of a model.
#include "ir/files/file_kind.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <string>

#include "ir/ops/names.h"

namespace opwire {
namespace {

struct Impostor {
  std::string_view begins;  // lower case
  std::string_view advice;
};
// Text, behind white space and in any case of letters.
constexpr Impostor kTexts[] = {
    {"version https://git-lfs.github.com/spec/",
     "it is a pointer of Git LFS, not the file: get the file by `git lfs pull`"},
    {"<!doctype html", "it is an HTML page, not the file: download the file again"},
    {"<html", "it is an HTML page, not the file: download the file again"},
};
constexpr Impostor kBinaries[] = {
    {std::string_view("PK\x03\x04", 4),
     "it is a ZIP archive, such as a checkpoint of PyTorch: save the weights as .safetensors"},
    {std::string_view("\x80\x02", 2),
     "it is a pickle, such as a checkpoint of PyTorch: save the weights as .safetensors"},
    {"\x89HDF", "it is an HDF5 file: save the weights as .safetensors"},
    {"lmgg", "it has a format of ggml from before GGUF: convert it to GGUF"},
    {"fmgg", "it has a format of ggml from before GGUF: convert it to GGUF"},
    {"tjgg", "it has a format of ggml from before GGUF: convert it to GGUF"},
};

std::string Lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](char c) { return static_cast<char>(std::tolower(uint8_t(c))); });
  return out;
}

std::string_view AdviceFor(std::string_view file) {
  for (const Impostor& i : kBinaries) {
    if (file.starts_with(i.begins)) return i.advice;
  }
  const size_t text = file.find_first_not_of(" \t\r\n");
  if (text == std::string_view::npos) return "";
  const std::string start = Lower(file.substr(text));
  for (const Impostor& i : kTexts) {
    if (start.starts_with(i.begins)) return i.advice;
  }
  if (start[0] != '{') return "";
  return start.find("\"weight_map\"") != std::string::npos
             ? "it is the index of a model in several files: load those that it names"
             : "it is JSON, without tensors: load the .safetensors or .gguf file in its folder";
}

bool IsSafetensors(std::string_view file, int64_t file_bytes) {
  if (file.size() < 10 || (file[8] != '{' && file[8] != ' ')) return false;
  uint64_t header;
  std::memcpy(&header, file.data(), sizeof(header));
  return header >= 2 && header <= static_cast<uint64_t>(file_bytes - 8);
}

std::optional<FileKind> BySuffix(std::string_view name) {
  const std::string lower = Lower(name);
  if (lower.ends_with(".npy")) return FileKind::kNpy;
  if (lower.ends_with(".gguf")) return FileKind::kGguf;
  if (lower.ends_with(".safetensors")) return FileKind::kSafetensors;
  return std::nullopt;
}

}  // namespace

StatusOr<FileKind> KindOfFile(std::span<const uint8_t> file, int64_t file_bytes,
                              std::string_view name) {
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  if (bytes.starts_with("GGUF")) return FileKind::kGguf;
  if (bytes.starts_with("\x93NUMPY")) return FileKind::kNpy;
  if (IsSafetensors(bytes, file_bytes)) return FileKind::kSafetensors;
  if (bytes.empty()) return InvalidArgument("byte 0: it is empty: download it again");
  if (const std::string_view advice = AdviceFor(bytes); !advice.empty())
    return InvalidArgument("{}", advice);
  if (const std::optional<FileKind> kind = BySuffix(name)) return *kind;
  return InvalidArgument("expected a file of GGUF, safetensors or NPY, got one that begins with {}",
                         Clip(bytes.substr(0, 16), 16));
}

}  // namespace opwire
