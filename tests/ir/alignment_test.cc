// Bytes in which an 8-byte element lies misaligned are refused, whatever vector it is in.
#include "ir/schema/alignment.h"

#include <gtest/gtest.h>
#include <re2/re2.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "ir/schema/program_generated.h"
#include "ir/schema/wire_generated.h"

namespace opwire {
namespace {

// A vector of `size`-byte elements that starts `skew` bytes off where 8-byte elements may lie.
template <typename T>
flatbuffers::Offset<flatbuffers::Vector<T>> Skewed(flatbuffers::FlatBufferBuilder& b, int count,
                                                   size_t size, int skew) {
  b.PreAlign(count * size + 4, 8);  // so that without a skew the elements are aligned
  b.Align(4);
  const size_t words = count * size / 4;
  if (skew) b.PushElement<uint32_t>(0);
  b.StartVector(words, 4);
  for (size_t i = 0; i < words; ++i) b.PushElement<uint32_t>(0);
  return b.EndVector(static_cast<size_t>(count));
}

// Whether the verifier takes a Root to which `add` gives such a vector, at both offsets modulo 8:
// one of them is aligned.
template <typename T, typename Root, typename Add>
std::multiset<bool> Taken(size_t size, Add add) {
  std::multiset<bool> taken;
  for (int skew : {0, 1}) {
    flatbuffers::FlatBufferBuilder b;
    b.ForceDefaults(true);
    const auto name = b.CreateString("x");
    const auto vector = Skewed<T>(b, 3, size, skew);
    typename Root::Builder root(b);
    add(root, vector, name);
    b.Finish(root.Finish());
    flatbuffers::Verifier verifier(b.GetBufferPointer(), b.GetSize());
    taken.insert(verifier.VerifyBuffer<Root>(nullptr));
  }
  return taken;
}

const std::multiset<bool> kOneOfTwo = {false, true};

TEST(Alignment, MisalignedElementsAreRefused) {
  EXPECT_EQ((Taken<int64_t, fb::Run>(8, [](auto& r, auto v, auto) { r.add_shapes(v); })),
            kOneOfTwo);
  EXPECT_EQ((Taken<uint64_t, fb::Request>(8, [](auto& r, auto v, auto) { r.add_closes(v); })),
            kOneOfTwo);
  EXPECT_EQ((Taken<const fb::Binding*, fb::Run>(sizeof(fb::Binding),
                                                [](auto& r, auto v, auto) { r.add_bindings(v); })),
            kOneOfTwo);
  EXPECT_EQ((Taken<const fb::ResultSlot*, fb::Run>(
                sizeof(fb::ResultSlot), [](auto& r, auto v, auto) { r.add_results(v); })),
            kOneOfTwo);
  EXPECT_EQ((Taken<const fb::TimelinePoint*, fb::Run>(
                sizeof(fb::TimelinePoint), [](auto& r, auto v, auto) { r.add_waits(v); })),
            kOneOfTwo);
  EXPECT_EQ((Taken<const fb::TensorId*, fb::Request>(
                sizeof(fb::TensorId), [](auto& r, auto v, auto) { r.add_frees(v); })),
            kOneOfTwo);
  EXPECT_EQ((Taken<const fb::ResultInfo*, fb::RunReply>(
                sizeof(fb::ResultInfo), [](auto& r, auto v, auto) { r.add_results(v); })),
            kOneOfTwo);
  EXPECT_EQ((Taken<const fb::Limit*, fb::HelloReply>(
                sizeof(fb::Limit), [](auto& r, auto v, auto) { r.add_limits(v); })),
            kOneOfTwo);
  EXPECT_EQ((Taken<const fb::DimNode*, fb::Module>(sizeof(fb::DimNode),
                                                   [](auto& r, auto v, auto) { r.add_dims(v); })),
            kOneOfTwo);
  EXPECT_EQ((Taken<double, fb::Attr>(
                8, [](auto& r, auto v, auto name) { r.add_name(name), r.add_floats(v); })),
            kOneOfTwo);
}

// A vector that a schema gains is not forgotten.
TEST(Alignment, EveryElementOfEightBytesIsListed) {
  const std::filesystem::path folder = std::filesystem::path(OPWIRE_SOURCE) / "ir/schema";
  const auto read = [&](const char* name) {
    std::ifstream in(folder / name);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string schema = read("program.fbs") + read("wire.fbs"), listed = read("alignment.h");
  ASSERT_GT(schema.size(), 1000u);
  const RE2 wide("\\b(u?int64|float64|long|ulong|double)\\b"),
      structs("struct (\\w+) \\{([^}]*)\\}"), vectors("\\[(\\w+)\\]");
  std::set<std::string> wide_structs;
  std::string name, fields, element;
  for (re2::StringPiece rest(schema); RE2::FindAndConsume(&rest, structs, &name, &fields);) {
    if (RE2::PartialMatch(fields, wide)) wide_structs.insert(name);
  }
  ASSERT_TRUE(wide_structs.contains("TensorId"));
  for (re2::StringPiece rest(schema); RE2::FindAndConsume(&rest, vectors, &element);) {
    if (element == "int64" || element == "uint64") element += "_t";
    if (element == "float64") element = "double";
    if (wide_structs.contains(element))
      element = "opwire::fb::" + element;
    else if (element != "int64_t" && element != "uint64_t" && element != "double" &&
             !RE2::FullMatch(element, wide))
      continue;
    EXPECT_NE(listed.find("Vector<" + element + ">*"), std::string::npos)
        << "alignment.h lists no vector of " << element;
  }
}

}  // namespace
}  // namespace opwire
