// Fused kernels as their user sees them: rejected programs, the source's alphabet, flags, stops,
// and the switch from interpreted to compiled.
#include <gtest/gtest.h>

#include <atomic>
#include <cctype>
#include <cstring>
#include <set>
#include <thread>

#include "ir/scalar/scalar.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/fuser.h"
#include "kernels/fused/source.h"
#include "tests/fused/fixture.h"
#include "tests/fused/programs.h"

namespace opwire::fused {
namespace {

// Returns f(x, y) of one type by ops' names. Each op applies to the last value, and to y if it
// takes two operands.
ScalarProgram Chain(DType type, const std::vector<std::string>& rows) {
  ScalarProgram p;
  const int x = p.AddInput(type), y = p.AddInput(type);
  int value = x;
  for (const std::string& name : rows) {
    const OpDef& row = *Catalogue().Find(name);
    const std::vector<int> operands =
        row.operands.size() == 1 ? std::vector<int>{value} : std::vector<int>{value, y};
    value = *p.Append(row, operands, {}, type);
  }
  p.AddOutput(value);
  return p;
}

template <typename T>
TestTensor Tensor(DType type, const std::vector<T>& values) {
  TestTensor t(type, {static_cast<int64_t>(values.size())});
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}

TEST(ScalarProgram, RefusesWhatIsMalformed) {
  const auto refuses = [](const auto& change, absl::StatusCode code, std::string_view part) {
    ScalarProgram p;
    p.AddInput(DType::kF32);
    change(p);
    EXPECT_EQ(p.Check().code(), code);
    EXPECT_NE(MessageOf(p.Check()).find(part), std::string::npos) << p.Check();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument,
                 kTooMany = absl::StatusCode::kResourceExhausted;
  const auto one = [](Instruction i) {
    return [i](ScalarProgram& p) { p.AddOutput(p.Append(i)); };
  };
  refuses([](ScalarProgram&) {}, kInvalid, "without outputs");
  refuses([](ScalarProgram& p) { p.AddOutput(1); }, kInvalid, "no value 1");
  refuses([](ScalarProgram& p) { p.AddOutput(-1); }, kInvalid, "no value -1");
  refuses(one({Prim::kNeg, DType::kF32, {1, -1, -1}}), kInvalid, "value 1 as operand 0");  // itself
  refuses(one({Prim::kNeg, DType::kF32, {-1, -1, -1}}), kInvalid, "value -1");
  refuses(one({Prim::kNeg, DType::kF32, {0, 0, -1}}), kInvalid, "as operand 1");
  refuses(one({Prim::kNeg, DType::kF64, {0, -1, -1}}), kInvalid, "neg of f64 has a f32");
  refuses(one({Prim::kNot, DType::kF32, {0, -1, -1}}), kInvalid, "not of f32");
  refuses(one({Prim::kLt, DType::kF32, {0, 0, -1}}), kInvalid, "lt of f32 to f32");
  refuses(one({Prim::kSelect, DType::kF32, {0, 0, 0}}), kInvalid, "as operand 0");
  refuses(one({Prim::kIn, DType::kF32, {}, 1}), kInvalid, "operand 0");
  refuses(one({Prim::kIn, DType::kF32, {-1, -1, -1}, 1}), kInvalid, "no input 1");
  refuses(one({Prim::kIn, DType::kF64, {-1, -1, -1}, 0}), kInvalid, "no input 0 of f64");
  refuses(one({Prim::kAttr, DType::kF32, {-1, -1, -1}, 0}), kInvalid, "no argument 0");
  refuses(one({static_cast<Prim>(200), DType::kF32}), kInvalid, "no primitive 200");
  refuses(one({Prim::kConst, static_cast<DType>(99)}), kInvalid, "no element type 99");
  refuses(
      [](ScalarProgram& p) {
        for (int i = 0; i <= kMaxOutputs; ++i) p.AddOutput(0);
      },
      kTooMany, "17 outputs, at most 16");
  refuses(
      [](ScalarProgram& p) {
        for (int i = 0; i < kMaxInputs; ++i) p.AddInput(DType::kF32);
      },
      kTooMany, "17 inputs");
  refuses(
      [](ScalarProgram& p) {
        for (int i = 0; i <= kMaxArguments; ++i) p.AddArgument(DType::kF32);
      },
      kTooMany, "65 arguments");
  refuses(
      [](ScalarProgram& p) {
        for (int i = 0; i < kMaxInstructions; ++i) p.Append({Prim::kConst, DType::kF32});
      },
      kTooMany, "1025");
}

TEST(ScalarProgram, AppendSaysWhatARowTakes) {
  ScalarProgram p;
  const int x = p.AddInput(DType::kF32), n = p.AddInput(DType::kI32);
  const auto message = [&](const char* row, std::vector<int> operands) {
    return MessageOf(p.Append(*Catalogue().Find(row), operands, {}, DType::kF32).status());
  };
  EXPECT_EQ(message("matmul", {x, x}), "matmul has no scalar body");
  EXPECT_EQ(message("add", {x}), "add takes 2 operands, not 1");
  EXPECT_EQ(message("add", {x, 9}), "add: there is no value 9");
  EXPECT_EQ(message("add", {x, n}), "add: operand x is f32 beside i32");
  EXPECT_EQ(message("exp", {n}), "exp: operand x is i32 beside i32");
}

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Words of the language and of our library, our numbered names, numbers, and signs.
bool MayStand(const std::string& token) {
  static const std::set<std::string> words = {
      "struct",       "static",   "constexpr",    "const",     "auto",     "bool",
      "char",         "int",      "for",          "return",    "true",     "false",
      "fused",        "Rows",     "rows",         "stream",    "far",      "AskAhead",
      "in",           "out",      "step",         "vectors",   "i",        "flags",
      "arguments",    "Loop",     "kInputs",      "kOutputs",  "kLanes",   "template",
      "if",           "LoopOf",   "kOrdered",     "Bounded",   "IsBound",  "kTypes",
      "kVectorBytes", "uint8_t",  "uint16_t",     "uint32_t",  "uint64_t", "int8_t",
      "int16_t",      "int32_t",  "int64_t",      "float",     "double",   "Half",
      "BFloat16",     "E4M3",     "E5M2",         "Get",       "GetMask",  "Put",
      "Constant",     "Argument", "MaskArgument", "Apply",     "Whole",    "Wrapping",
      "Each",         "DivideOp", "IntegerPowOp", "Canonical", "Choose",   "ChooseMask",
      "OfMasks",      "Ones",     "CastTo",       "ToNarrow",  "Widen",    "Narrow",
      "NarrowEighth"};
  const auto made_of = [&](std::string_view characters, size_t from = 0) {
    return token.find_first_not_of(characters, from) == token.npos;
  };
  if (!IsWord(token[0])) return made_of(" \n{}()[]<>=!*/+,.;:&~?");
  if (token[0] >= '0' && token[0] <= '9') return made_of("0123456789abcdefxu");
  if (std::string_view("vpsquP").find(token[0]) != std::string_view::npos && token.size() > 1 &&
      made_of("0123456789", 1))
    return true;
  return words.contains(token) || (token[0] >= 'A' && token[0] <= 'Z' && token.ends_with("Op") &&
                                   token.find('_') == token.npos);
}

// For any program.
TEST(HostSource, HoldsNothingForeign) {
  std::mt19937_64 random(Seed());
  for (int n = 0; n < 50; ++n) {
    const std::string text = ProgramSource(RandomProgram(random, 64).program, n);
    for (size_t begin = 0, end; begin < text.size(); begin = end) {
      for (end = begin + 1; end < text.size() && IsWord(text[end]) == IsWord(text[begin]);) ++end;
      const std::string token = text.substr(begin, end - begin);
      EXPECT_TRUE(MayStand(token)) << "'" << token << "' in\n" << text;
    }
  }
}

TEST(HostSource, IsEqualForEqualPrograms) {
  const ScalarProgram a = Chain(DType::kF32, {"add", "relu"}),
                      b = Chain(DType::kF32, {"add", "relu"}),
                      c = Chain(DType::kF32, {"add", "sign"});
  const ScalarProgram *pa[] = {&a}, *pb[] = {&b}, *pc[] = {&c};
  EXPECT_EQ(HostSource(pa), HostSource(pb));
  EXPECT_NE(HostSource(pa), HostSource(pc));
}

// The requirements on every kernel of a program, interpreted or compiled.
void ExpectFlagsStopsAndSharing(const opw_kernel& divide, const opw_kernel& add) {
  for (const int n : {1, 3, 16, 67, 5000}) {  // also with remaining lanes
    const TestTensor ones = Tensor(DType::kI32, std::vector<int32_t>(n, 1)),
                     zeros = Tensor(DType::kI32, std::vector<int32_t>(n, 0));
    std::vector<TestTensor> y = {ones};
    EXPECT_EQ(Call(divide, {ones, ones}, y), 0u) << n;
    EXPECT_EQ(y[0].bytes, ones.bytes);
    EXPECT_EQ(Call(divide, {ones, zeros}, y), static_cast<uint32_t>(OPW_FLAG_DIVIDE)) << n;
    EXPECT_EQ(y[0].bytes, zeros.bytes);
  }
  const std::vector<float> x(100'000, 1.0f);
  std::vector<TestTensor> y = {Tensor(DType::kF32, std::vector<float>(x.size()))};
  Call(add, {Tensor(DType::kF32, x), Tensor(DType::kF32, x)}, y, {}, 2);  // two ranges, then a stop
  int64_t written = 0;
  for (size_t i = 0; i < x.size(); ++i)
    written += ops::Load<float>(y[0].bytes.data(), static_cast<int64_t>(i)) == 2.0f;
  EXPECT_EQ(written, 2 * 16384);

  // The result takes an operand's place.
  std::vector<float> values(70'001, 3.0f);
  const int64_t n = static_cast<int64_t>(values.size()), stride = 1;
  const opw_tensor t = {values.data(), &n, &stride, n, OPW_F32, 0, 1, 1};
  const opw_tensor operands[] = {t, t};
  EXPECT_EQ(CallOn(add, operands, {&t, 1}), 0u);
  EXPECT_EQ(values, std::vector<float>(values.size(), 6.0f));
}

class FusedKernels : public testing::Test {
 protected:
  Builder builder_;
};

TEST_F(FusedKernels, InterpretAtOnceAndSwitchToCompiled) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  const ScalarProgram div = Chain(DType::kI32, {"div"}), sum = Chain(DType::kF32, {"add"});
  FusedKernel divide(div), add(sum);
  EXPECT_FALSE(divide.functions().compiled());
  EXPECT_EQ(divide.functions().status().code(), absl::StatusCode::kUnavailable);
  ExpectFlagsStopsAndSharing(divide.kernel(), add.kernel());
  divide.functions().Compile(builder_.toolchain(), builder_.cache());
  add.functions().Compile(builder_.toolchain(), builder_.cache());
  EXPECT_TRUE(divide.functions().compiled() && add.functions().compiled())
      << divide.functions().status() << add.functions().status();
  EXPECT_TRUE(divide.functions().status().ok());
  ExpectFlagsStopsAndSharing(divide.kernel(), add.kernel());
}

TEST_F(FusedKernels, SwitchWhileOthersRun) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  const ScalarProgram program = Chain(DType::kF16, {"add", "exp", "mul"});
  FusedKernel fused(program);
  std::mt19937_64 random(Seed());
  std::vector<TestTensor> inputs = {TestTensor(DType::kF16, {3000}),
                                    TestTensor(DType::kF16, {3000})};
  for (TestTensor& t : inputs) FillHard(t, random);
  std::vector<TestTensor> expected = {TestTensor(DType::kF16, {3000})};
  Call(fused.kernel(), inputs, expected);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      std::vector<TestTensor> y = {TestTensor(DType::kF16, {3000})};
      while (!done.load()) {
        Call(fused.kernel(), inputs, y);
        EXPECT_EQ(FirstDifference(expected[0], y[0]), "");
      }
    });
  }
  fused.functions().Compile(builder_.toolchain(), builder_.cache());
  for (int i = 0; i < 100; ++i) std::this_thread::yield();
  done = true;
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(fused.functions().compiled()) << fused.functions().status();
}

TEST_F(FusedKernels, StayInterpretedWhereTheCompilerFails) {
  const auto broken = jit::HostCompiler({.compiler = "/no/such/compiler"});
  const ScalarProgram div = Chain(DType::kI32, {"div"}), sum = Chain(DType::kF32, {"add"});
  FusedKernel divide(div), add(sum);
  divide.functions().Compile(*broken, builder_.cache());
  add.functions().Compile(*broken, builder_.cache());
  EXPECT_FALSE(divide.functions().compiled());
  EXPECT_EQ(divide.functions().status().code(), absl::StatusCode::kFailedPrecondition)
      << divide.functions().status();
  ExpectFlagsStopsAndSharing(divide.kernel(), add.kernel());
}

TEST_F(FusedKernels, SayOnceThatCompilingThemPays) {
  int said = 0;
  const ScalarProgram program = Chain(DType::kI8, std::vector<std::string>(1000, "add"));
  const FusedKernel fused(program, [&] { ++said; });
  constexpr int64_t kElements = int64_t{1} << 18;
  const std::vector<TestTensor> inputs(2, TestTensor(DType::kI8, {kElements}));
  std::vector<TestTensor> y = {TestTensor(DType::kI8, {kElements})};
  const int64_t runs = Functions::kWorthCompiling /
                       (kElements * static_cast<int64_t>(program.instructions().size()));
  for (int64_t i = 0; i < runs; ++i) Call(fused.kernel(), inputs, y);
  EXPECT_EQ(said, 0);
  for (int64_t i = 0; i < 2 * runs; ++i) Call(fused.kernel(), inputs, y);
  EXPECT_EQ(said, 1);
}

// Results in the places of operands, swapped; one of them is a copy of another one.
TEST_F(FusedKernels, ReadAllBeforeTheyWrite) {
  ScalarProgram p;
  const int x = p.AddInput(DType::kF32), y = p.AddInput(DType::kF32);
  p.AddOutput(*p.Append(*Catalogue().Find("add"), std::vector<int>{x, y}, {}, DType::kF32));
  p.AddOutput(*p.Append(*Catalogue().Find("sub"), std::vector<int>{x, y}, {}, DType::kF32));
  ScalarProgram swap;
  for (const int input : {swap.AddInput(DType::kF32), swap.AddInput(DType::kF32)})
    swap.AddOutput(1 - input);
  for (const bool compiled : {false, true}) {
    if (compiled && UnitArch().empty()) break;
    for (const ScalarProgram* const program : {&p, &swap}) {
      FusedKernel fused(*program);
      if (compiled) fused.functions().Compile(builder_.toolchain(), builder_.cache());
      EXPECT_EQ(fused.functions().compiled(), compiled) << fused.functions().status();
      for (const int64_t n : {1, 7, 16, 1000, 70'001}) {
        std::vector<float> a(static_cast<size_t>(n)), b(a.size());
        for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i), b[i] = 3.0f;
        const int64_t stride = 1;
        const opw_tensor ta = {a.data(), &n, &stride, n, OPW_F32, 0, 1, 1},
                         tb = {b.data(), &n, &stride, n, OPW_F32, 0, 1, 1};
        const bool crosses = program == &p;
        const opw_tensor operands[] = {ta, tb}, results[] = {crosses ? tb : ta, crosses ? ta : tb};
        CallOn(fused.kernel(), operands, results);
        for (size_t i = 0; i < a.size(); ++i) {
          const auto was = static_cast<float>(i);
          ASSERT_EQ(b[i], crosses ? was + 3.0f : was) << i;
          ASSERT_EQ(a[i], crosses ? was - 3.0f : 3.0f) << i;
        }
      }
    }
  }
}

// More than 8 MiB: results that begin at cache lines bypass the caches. Operands are prefetched, to
// their ends and beyond.
TEST_F(FusedKernels, TakeWhatNoCacheHolds) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  constexpr int64_t kCount = (int64_t{2} << 20) + 5, kSpare = 16, kStride = 1, kStill = 0;
  FusedKernel add(Chain(DType::kF32, {"add"}));
  add.functions().Compile(builder_.toolchain(), builder_.cache());
  ASSERT_TRUE(add.functions().compiled()) << add.functions().status();
  std::vector<float> x(kCount), memory(kCount + 2 * kSpare, -1.0f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  float three = 3.0f;
  const opw_tensor tx = {x.data(), &kCount, &kStride, kCount, OPW_F32, 0, 1, 1},
                   number = {&three, &kCount, &kStill, kCount, OPW_F32, 0, 1, 1};
  float* const line =
      memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / sizeof(float);
  for (const int64_t apart : {0, 1}) {  // from the beginning of a cache line
    for (const opw_tensor& other : {tx, number}) {
      float* const y = line + apart;
      const opw_tensor operands[] = {tx, other},
                       ty = {y, &kCount, &kStride, kCount, OPW_F32, 0, 1, 1};
      ASSERT_EQ(CallOn(add.kernel(), operands, {&ty, 1}), 0u);
      int64_t wrong = 0;
      for (size_t i = 0; i < x.size(); ++i)
        wrong += y[i] != x[i] + (other.data == &three ? 3.0f : x[i]);
      EXPECT_EQ(wrong, 0) << apart;
      ASSERT_EQ(y[kCount], -1.0f) << "what lies behind";
    }
    std::ranges::fill(memory, -1.0f);
  }
}

class HostFuserTest : public testing::Test {
 protected:
  Folder folder_;
  std::shared_ptr<Fuser> fuser_ = MakeHostFuser({.cache = KernelCache(folder_)});
};

TEST_F(HostFuserTest, EqualProgramsHaveOneKernelAsLongAsItIsHeld) {
  const auto one = fuser_->Get(Chain(DType::kF32, {"add", "relu"}));
  EXPECT_EQ(fuser_->Get(Chain(DType::kF32, {"add", "relu"})), one);
  EXPECT_NE(fuser_->Get(Chain(DType::kF32, {"add", "sign"})), one);
  EXPECT_NE(fuser_->Get(Chain(DType::kF64, {"add", "relu"})), one);
  EXPECT_TRUE(fuser_->Settled());
}

TEST_F(HostFuserTest, CompilesWhatWorksMuch) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  const auto kernel = fuser_->Get(Chain(DType::kI8, std::vector<std::string>(1000, "add")));
  constexpr int64_t kElements = int64_t{1} << 21;
  TestTensor ones(DType::kI8, {kElements});
  ones.bytes.assign(ones.bytes.size(), 1);
  std::vector<TestTensor> y = {TestTensor(DType::kI8, {kElements})};
  Call(*kernel, {ones, ones}, y);
  EXPECT_FALSE(fuser_->Settled()) << "it is being compiled";
  Call(*kernel, {ones, ones}, y);
  while (!fuser_->Settled()) std::this_thread::yield();
  const std::vector<uint8_t> interpreted = y[0].bytes;
  Call(*kernel, {ones, ones}, y);
  EXPECT_EQ(y[0].bytes, interpreted);
  fuser_.reset();
  Call(*kernel, {ones, ones}, y);
  EXPECT_EQ(y[0].bytes, std::vector<uint8_t>(ones.bytes.size(), static_cast<uint8_t>(1001)))
      << "it outlives its fuser";
}

}  // namespace
}  // namespace opwire::fused
