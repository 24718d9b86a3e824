// First bytes of files, and what people have instead of a model.
#include "ir/files/file_kind.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <string>

#include "ir/files/tensor_file.h"
#include "ir/ops/names.h"

namespace opwire {
namespace {

constexpr size_t kTarMagic = 257;  // byte
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

struct Impostor {
  std::string_view begins;  // lower case
  std::string_view advice;
};
constexpr std::string_view kLfs =
    "it is a pointer of Git LFS, not the file: get the file by `git lfs pull`";
constexpr std::string_view kAnnex =
    "it is a pointer of git-annex, not the file: get the file by `git annex get`";
constexpr std::string_view kHtml = "it is an HTML page, not the file: download the file again";
// Text, behind a byte order mark and white space, in any case of letters.
constexpr Impostor kTexts[] = {
    {"version https://git-lfs.github.com/spec/", kLfs},
    {"version https://hawser.github.com/spec/", kLfs},
    {"version http://git-media.io/v/", kLfs},
    {"# git-media", kLfs},
    {"# external", kLfs},
    {"/annex/objects/", kAnnex},
    {"../.git/annex/objects/", kAnnex},
    {".git/annex/objects/", kAnnex},
    {"# xet version", "it is a pointer of Xet, not the file: get the file by `git xet checkout`"},
};
// Tags with which a page begins, behind comments.
constexpr std::string_view kPageTags[] = {"<!doctype html", "<html",   "<head", "<body",  "<title",
                                          "<meta",          "<script", "<h1",   "<center"};
constexpr std::string_view kPickle =
    "it is a pickle, such as a checkpoint of PyTorch: save the weights as .safetensors";
constexpr std::string_view kUtf16 = "it is text of UTF-16, not a model: download the file again";
constexpr std::string_view kZip =
    "it is a ZIP archive, such as a checkpoint of PyTorch: save the weights as .safetensors";
constexpr std::string_view kOldGgml =
    "it has a format of ggml from before GGUF: convert it to GGUF";
constexpr Impostor kBinaries[] = {
    {std::string_view("PK\x03\x04", 4), kZip},
    {std::string_view("PK\x05\x06", 4), kZip},
    {"7z\xbc\xaf\x27\x1c", "it is a 7z archive: unpack it"},
    {"Rar!\x1a\x07", "it is a RAR archive: unpack it"},
    {"\x80\x02", kPickle},
    {"\x80\x03", kPickle},
    {"\x80\x04", kPickle},
    {"\x80\x05", kPickle},
    {"\x89HDF", "it is an HDF5 file: save the weights as .safetensors"},
    {"\x1f\x8b", "it is compressed by gzip: unpack it"},
    {"\x28\xb5\x2f\xfd", "it is compressed by zstd: unpack it"},
    {"\xfd"
     "7zXZ",
     "it is compressed by xz: unpack it"},
    {"BZh", "it is compressed by bzip2: unpack it"},
    {"lmgg", kOldGgml},
    {"fmgg", kOldGgml},
    {"tjgg", kOldGgml},
    {"algg", kOldGgml},
    {"\xff\xfe", kUtf16},
    {"\xfe\xff", kUtf16},
};

std::string Lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](char c) { return static_cast<char>(std::tolower(uint8_t(c))); });
  return out;
}

std::string_view WithoutSpace(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

std::string_view AdviceForMarkup(std::string_view text) {
  while (text.starts_with("<!--")) {
    const size_t end = text.find("-->");
    if (end == std::string_view::npos) break;
    text = WithoutSpace(text.substr(end + 3));
  }
  const bool page =
      std::ranges::any_of(kPageTags, [&](std::string_view tag) { return text.starts_with(tag); });
  if (page || text.find("<html") != std::string_view::npos) return kHtml;
  return "it is XML, such as a server's error message, not the file: download the file again";
}

// UTF-8 without control characters. The last character may be cut.
bool IsText(std::string_view file) {
  const auto is_text = [](char c) {
    return (uint8_t(c) >= ' ' && c != '\x7f') || c == '\t' || c == '\r' || c == '\n';
  };
  if (!std::ranges::all_of(file, is_text)) return false;
  for (size_t cut = 0; cut < 4; ++cut) {
    if (IsUtf8(file.substr(0, file.size() - cut))) return true;
  }
  return false;
}

// The length of a header, below 2^40, and its first character.
bool BeginsAsSafetensors(std::string_view file) {
  return file.size() > 8 && file.substr(5, 3) == std::string_view("\0\0\0", 3) &&
         (file[8] == '{' || file[8] == ' ');
}

// Of JSON that begins in `start`, lower case.
std::string_view AdviceForJson(std::string_view start, std::string_view name) {
  if (start.find("\"weight_map\"") != std::string_view::npos ||
      Lower(name).ends_with(".index.json"))
    return "it is the index of a model in several files: load those that it names";
  const std::string_view first = WithoutSpace(start.substr(1));
  for (const std::string_view key : {"\"error", "\"message", "\"detail", "\"code", "\"status"}) {
    if (first.starts_with(key))
      return "it is a server's error message, not the file: download the file again";
  }
  return "it is JSON, without tensors: load the .safetensors or .gguf file in its folder, or, of "
         "an "
         "index, those that it names";
}

std::string_view AdviceFor(std::string_view file, std::string_view name) {
  if (BeginsAsSafetensors(file)) return "";  // though it may be cut
  for (const Impostor& i : kBinaries) {
    if (file.starts_with(i.begins)) return i.advice;
  }
  if (file.size() > kTarMagic && file.substr(kTarMagic).starts_with("ustar"))
    return "it is a tar archive: unpack it";
  if (!IsText(file)) return "";
  if (file.starts_with(kByteOrderMark)) file.remove_prefix(kByteOrderMark.size());
  const std::string text = Lower(file);
  const std::string_view start = WithoutSpace(text);
  for (const Impostor& i : kTexts) {
    if (start.starts_with(i.begins)) return i.advice;
  }
  if (start.starts_with('<')) return AdviceForMarkup(start);
  return start.starts_with('{') ? AdviceForJson(start, name) : "";
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
  if (const std::string_view advice = AdviceFor(bytes, name); !advice.empty())
    return InvalidArgument("{}", advice);
  if (const std::optional<FileKind> kind = BySuffix(name)) {
    if (bytes.size() <= 4 || !IsText(bytes)) return *kind;
    return InvalidArgument("it is text, not a model: download the file again; it begins with {}",
                           Clip(bytes));
  }
  return InvalidArgument("expected a file of GGUF, safetensors or NPY, got one that begins with {}",
                         Clip(bytes.substr(0, 16), 16));
}

}  // namespace opwire
