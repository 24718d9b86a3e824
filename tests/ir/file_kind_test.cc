// First bytes of models, and of what people have instead.
#include "ir/files/file_kind.h"

#include <gtest/gtest.h>

#include <string>

namespace opwire {
namespace {

StatusOr<FileKind> KindOf(const std::string& file, std::string_view name) {
  return KindOfFile({reinterpret_cast<const uint8_t*>(file.data()), file.size()},
                    static_cast<int64_t>(file.size()), name);
}

TEST(FileKind, ByTheFirstBytesWhateverTheName) {
  const std::string safetensors = std::string("\x02\0\0\0\0\0\0\0", 8) + "{}";
  for (const char* name : {"", "model", "m.gguf", "M.NPY", "m.SafeTensors"}) {
    EXPECT_EQ(KindOf("GGUF....", name).value(), FileKind::kGguf) << name;
    EXPECT_EQ(KindOf("\x93NUMPY\x01", name).value(), FileKind::kNpy) << name;
    EXPECT_EQ(KindOf(safetensors, name).value(), FileKind::kSafetensors) << name;
  }
}

TEST(FileKind, OfBrokenFilesByTheSuffix) {
  EXPECT_EQ(KindOf("GG", "M.Gguf").value(), FileKind::kGguf);
  EXPECT_EQ(KindOf("??", "m.npy").value(), FileKind::kNpy);
  EXPECT_EQ(KindOf(std::string(16, '\xff'), "m.safetensors").value(), FileKind::kSafetensors);
  for (const char* length : {"\x20\x3c", "\x80\x04", "\x20\x7b"})  // as of XML, a pickle, JSON
    EXPECT_EQ(KindOf(length + std::string(6, '\0') + "{\"a\":", "m.safetensors").value(),
              FileKind::kSafetensors);
  EXPECT_EQ(KindOf("??", "m.bin").status(),
            InvalidArgument("expected a file of GGUF, safetensors or NPY, got one that begins with "
                            "??"));
}

TEST(FileKind, OthersAreNamed) {
  const auto said = [](const std::string& file) {
    return MessageOf(KindOf(file, "m.safetensors").status());
  };
  EXPECT_EQ(said(""), "byte 0: it is empty: download it again");
  EXPECT_EQ(said("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n"),
            "it is a pointer of Git LFS, not the file: get the file by `git lfs pull`");
  EXPECT_EQ(said("\r\n<HTML lang=en>"),
            "it is an HTML page, not the file: download the file again");
  for (const char* page :
       {"\xef\xbb\xbf<!doctype HTML>", "<head>", "<!-- a --><!-- b -->\n<html>", "<TITLE>404",
        "<?xml version=\"1.0\"?>\n<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML\">\n<html xmlns=\"\">"})
    EXPECT_EQ(said(page), "it is an HTML page, not the file: download the file again") << page;
  for (const char* xml : {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>",
                          "<!-- an end is missing", "<Error>"})
    EXPECT_EQ(said(xml),
              "it is XML, such as a server's error message, not the file: download the file again");
  EXPECT_EQ(
      said("Entry not found\n"),
      "it is text, not a model: download the file again; it begins with Entry not found\\x0a");
  for (const char* pointer :
       {"version https://hawser.github.com/spec/v1\noid", "version http://git-media.io/v/2\noid"})
    EXPECT_EQ(said(pointer),
              "it is a pointer of Git LFS, not the file: get the file by `git lfs pull`");
  EXPECT_EQ(said("/annex/objects/SHA256E-s3--00.gguf\n"),
            "it is a pointer of git-annex, not the file: get the file by `git annex get`");
  EXPECT_EQ(said("\x80\x04\x95"),
            "it is a pickle, such as a checkpoint of PyTorch: save the weights as .safetensors");
  EXPECT_EQ(said("\x1f\x8b\x08"), "it is compressed by gzip: unpack it");
  EXPECT_EQ(said(R"( {"weight_map": {"w": "m-00001-of-00002.safetensors"}})"),
            "it is the index of a model in several files: load those that it names");
  EXPECT_EQ(said(R"({"hidden_size": 64})"),
            "it is JSON, without tensors: load the .safetensors or .gguf file in its folder, or, "
            "of an index, those that it names");
  EXPECT_EQ(said(R"({"error": "Repository not found"})"),
            "it is a server's error message, not the file: download the file again");
  EXPECT_EQ(MessageOf(KindOf("{" + std::string(5000, ' '), "M.safetensors.index.JSON").status()),
            "it is the index of a model in several files: load those that it names");
  EXPECT_EQ(said(std::string(257, 'm') + "ustar"), "it is a tar archive: unpack it");
  EXPECT_EQ(said("7z\xbc\xaf\x27\x1c"), "it is a 7z archive: unpack it");
  EXPECT_EQ(said("Rar!\x1a\x07\x01"), "it is a RAR archive: unpack it");
  EXPECT_EQ(said(std::string("\xff\xfe<\0h\0", 6)),
            "it is text of UTF-16, not a model: download the file again");
  EXPECT_EQ(said("PK\x03\x04"),
            "it is a ZIP archive, such as a checkpoint of PyTorch: save the weights as "
            ".safetensors");
  EXPECT_EQ(said("tjgg"), "it has a format of ggml from before GGUF: convert it to GGUF");
}

}  // namespace
}  // namespace opwire
