// Golden bytes: messages that releases have sent must stay readable, with the same meaning.
//
// golden/MAJOR.MINOR/ holds files of that protocol version: requests.bin and replies.bin (each
// message after its length, 4 bytes, little-endian), verified.opwp, everything.opwp and
// verified.opw. Their values are in golden_values.cc. `ir_test --update-golden` writes the files of
// the present version, and no others. A released program sends the bytes in the files of an earlier
// version, so these are never written again.
#include "tests/ir/golden.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "ir/verify/verify.h"
#include "ir/wire/message.h"
#include "tests/ir/golden_values.h"

namespace opwire {

bool update_golden = false;

namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(OPWIRE_SOURCE) / "tests/ir/golden";
std::string Present() { return fmt::format("{}.{}", kProtocolMajor, kProtocolMinor); }

template <typename Table, typename TableT>
std::string Encode(const TableT& value) {
  flatbuffers::FlatBufferBuilder b;
  b.Finish(Table::Pack(b, &value));
  return {reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize()};
}

template <typename Table, typename TableT>
std::string EncodeAll(const std::vector<TableT>& values) {
  std::string out;
  for (const TableT& v : values) {
    const std::string bytes = Encode<Table>(v);
    const auto size = static_cast<uint32_t>(bytes.size());
    out.append(reinterpret_cast<const char*>(&size), sizeof(size));
    out += bytes;
  }
  return out;
}

std::vector<std::string> Split(const std::string& file) {
  std::vector<std::string> out;
  for (size_t at = 0; at + sizeof(uint32_t) <= file.size();) {
    uint32_t size;
    std::memcpy(&size, file.data() + at, sizeof(size));
    out.push_back(file.substr(at + sizeof(size), size));
    at += sizeof(size) + size;
  }
  return out;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

// Reports in a readable form where two byte strings differ.
testing::AssertionResult SameBytes(const std::string& got, const std::string& stored) {
  if (got == stored) return testing::AssertionSuccess();
  const auto at =
      std::mismatch(got.begin(),
                    got.begin() + static_cast<ptrdiff_t>(std::min(got.size(), stored.size())),
                    stored.begin())
          .first -
      got.begin();
  return testing::AssertionFailure() << got.size() << " bytes, stored are " << stored.size()
                                     << "; they differ from byte " << at;
}

// Each stored message is read as the value that it was written from, and that value still gives the
// bytes that its readers know.
template <typename Table, typename TableT>
void Compare(const std::string& file, const std::vector<TableT>& values) {
  const std::vector<std::string> stored = Split(file);
  ASSERT_EQ(stored.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    SCOPED_TRACE(testing::Message()
                 << "message " << i << ", body " << static_cast<int>(values[i].body.type));
    std::vector<uint64_t> aligned((stored[i].size() + 7) / 8);
    std::memcpy(aligned.data(), stored[i].data(), stored[i].size());
    const auto* bytes = reinterpret_cast<const uint8_t*>(aligned.data());
    flatbuffers::Verifier verifier(bytes, stored[i].size());
    ASSERT_TRUE(verifier.VerifyBuffer<Table>(nullptr));
    TableT read;
    flatbuffers::GetRoot<Table>(bytes)->UnPackTo(&read);
    EXPECT_EQ(read.body.type, values[i].body.type);
    EXPECT_TRUE(SameBytes(Encode<Table>(read), Encode<Table>(values[i])))
        << "read as another value";
    EXPECT_TRUE(SameBytes(Encode<Table>(values[i]), stored[i])) << "written otherwise";
  }
}

void CompareProgram(const std::string& stored, const Module& value) {
  const auto read = Deserialise({reinterpret_cast<const uint8_t*>(stored.data()), stored.size()});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(Equal(*read, value));
  EXPECT_EQ(Print(*read), Print(value));
  EXPECT_EQ(read->features, value.features);
  EXPECT_TRUE(SameBytes(Serialise(value), stored)) << "written otherwise";
}

TEST(Golden, EveryVersionIsReadAsItWasWritten) {
  if (update_golden) {
    const fs::path here = kGolden / Present();
    fs::create_directories(here);
    const auto write = [&](const char* name, const std::string& bytes) {
      std::ofstream(here / name, std::ios::binary) << bytes;
    };
    write("requests.bin", EncodeAll<fb::Request>(golden::Requests(kProtocolMinor)));
    write("replies.bin", EncodeAll<fb::Reply>(golden::Replies(kProtocolMinor)));
    write("verified.opwp", Serialise(golden::Verified(kProtocolMinor)));
    write("everything.opwp", Serialise(golden::Everything(kProtocolMinor)));
    write("verified.opw", Print(golden::Verified(kProtocolMinor)));
  }
  std::set<std::string> versions;
  for (const auto& entry : fs::directory_iterator(kGolden))
    versions.insert(entry.path().filename());
  EXPECT_TRUE(versions.contains(Present())) << "run ir_test --update-golden for the new version";
  for (const std::string& version : versions) {
    SCOPED_TRACE(version);
    int major = -1, minor = -1;
    ASSERT_EQ(std::sscanf(version.c_str(), "%d.%d", &major, &minor), 2);
    if (major != kProtocolMajor) continue;  // refused by Hello
    EXPECT_LE(minor, kProtocolMinor);
    const fs::path here = kGolden / version;
    Compare<fb::Request>(ReadFile(here / "requests.bin"), golden::Requests(minor));
    Compare<fb::Reply>(ReadFile(here / "replies.bin"), golden::Replies(minor));
    CompareProgram(ReadFile(here / "everything.opwp"), golden::Everything(minor));
    const std::string verified = ReadFile(here / "verified.opwp");
    CompareProgram(verified, golden::Verified(minor));
    auto module = Deserialise({reinterpret_cast<const uint8_t*>(verified.data()), verified.size()});
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(Print(*module), ReadFile(here / "verified.opw"));
    EXPECT_TRUE(VerifyModule(*module).ok());
  }
}

// Every kind of the schema is in the files: a new kind needs a value.
TEST(Golden, EveryKindHasAValue) {
  std::set<fb::Body> requests;
  for (const auto& r : golden::Requests(kProtocolMinor)) requests.insert(r.body.type);
  for (fb::Body kind : fb::EnumValuesBody())
    EXPECT_TRUE(requests.contains(kind)) << fb::EnumNameBody(kind);
  std::set<fb::ReplyBody> replies;
  for (const auto& r : golden::Replies(kProtocolMinor)) replies.insert(r.body.type);
  for (fb::ReplyBody kind : fb::EnumValuesReplyBody())
    EXPECT_TRUE(replies.contains(kind)) << fb::EnumNameReplyBody(kind);
  std::set<AttrKind> attrs;
  const Module everything = golden::Everything(kProtocolMinor);
  for (const NamedAttr& a : everything.functions[0].nodes.back().attrs)
    attrs.insert(KindOf(a.value));
  EXPECT_EQ(attrs.size(), static_cast<size_t>(kAttrKindCount));
  std::set<DimKind> dims;
  for (const DimNode& n : everything.dims.nodes()) dims.insert(n.kind);
  for (int kind = 0; kind <= static_cast<int>(DimKind::kFromValue); ++kind)
    EXPECT_TRUE(dims.contains(static_cast<DimKind>(kind))) << kind;
}

}  // namespace
}  // namespace opwire
