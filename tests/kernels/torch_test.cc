// libtorch's variants: modules that are refused, the tables of rows, and what the module does with
// memory and exceptions where it was built.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/select/key_types.h"
#include "kernels/torch/library.h"
#include "kernels/torch/torch_ops.h"
#include "tests/assert_ok.h"
#include "tests/folder.h"

namespace opwire::torch {
namespace {

class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Setting() { unsetenv(name_); }

 private:
  const char* const name_;
};

testing::AssertionResult Says(const Status& status, absl::StatusCode code, std::string_view part) {
  if (status.code() == code && MessageOf(status).find(part) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << status;
}

// ---- Refusals, for which nothing of torch is needed

TEST(TorchModule, IsLookedForWhereTheSettingSays) {
  const Folder folder;
  const Setting setting("OPWIRE_TORCH", folder.path());
  EXPECT_TRUE(Says(FindModule().status(), absl::StatusCode::kNotFound,
                   folder.path() + "/opwire_torch.so (OPWIRE_TORCH may name"));
}

TEST(TorchModule, MissingOneIsAReason) {
  const Folder folder;
  EXPECT_TRUE(Says(OpenModule(folder.path() + "/opwire_torch.so").status(),
                   absl::StatusCode::kFailedPrecondition, "cannot be loaded: "));
}

TEST(TorchModule, OneOfAnotherVersionIsRefused) {
  EXPECT_TRUE(Says(OpenModule(OPWIRE_FAKE_TORCH).status(), absl::StatusCode::kFailedPrecondition,
                   "its interface has version 2.1, this one's 1.1"));
}

TEST(TorchModule, AnotherLibraryIsRefused) {
  EXPECT_TRUE(Says(OpenModule("libm.so.6").status(), absl::StatusCode::kFailedPrecondition,
                   "it exports no opwire_torch"));
}

TEST(TorchModule, AWrongInstallationIsNamed) {
  const Folder folder;
  const Setting setting("OPWIRE_LIBTORCH", folder.path());
  EXPECT_TRUE(Says(OpenModule(OPWIRE_FAKE_TORCH).status(), absl::StatusCode::kFailedPrecondition,
                   "OPWIRE_LIBTORCH names no installation of torch"));
}

TEST(TorchVariants, AreThereWithTheReasonWithoutAModule) {
  const Folder folder;
  const Setting setting("OPWIRE_TORCH", folder.path());
  ASSERT_OK_AND(const auto device, OpenDevice("cpu", {}));
  const VariantTable table = BuildVariantTable(*device);
  bool found = false;
  for (const Candidate& c : table.Explain("softmax", DType::kF32)) {
    if (c.variant->name != "torch") continue;
    found = true;
    EXPECT_FALSE(c.chosen);
    EXPECT_EQ(c.variant->tier, Tier::kLibtorch);
    EXPECT_NE(c.reason.find("there is no " + folder.path()), std::string::npos) << c.reason;
  }
  EXPECT_TRUE(found);
}

TEST(TorchVariants, AModuleThatIsRefusedIsAReasonWhenItIsAskedFor) {
  const Setting setting("OPWIRE_TORCH", OPWIRE_FAKE_TORCH);
  ASSERT_OK_AND(const auto device, OpenDevice("cpu", {}));
  const VariantTable table = BuildVariantTable(*device);
  const auto torch = [&]() -> const Variant& {
    return *std::ranges::find(table.Of("softmax"), "torch", &Variant::name);
  };
  EXPECT_EQ(torch().unavailable, "");
  EXPECT_EQ(torch().library(/*open=*/false), "");
  for (const Candidate& c : table.Explain("softmax", DType::kF32)) {
    if (c.variant->name == "torch") {
      EXPECT_NE(c.reason.find("is of another executor"), std::string::npos) << c.reason;
    }
  }
  EXPECT_NE(torch().library(/*open=*/false), "");
}

TEST(TorchOps, EveryRowIsInOneOfTheTables) {
  std::map<std::string, int> times;
  for (const TorchOp& row : TorchOps()) ++times[row.op];
  for (const UnsupportedOp& row : UnsupportedOps()) {
    ++times[row.op];
    EXPECT_STRNE(row.reason, "") << row.op;
  }
  for (const OpDef& row : Catalogue().rows())
    EXPECT_EQ(times[row.name], row.control == Control::kNone)
        << row.name << ": kernels/torch/torch_ops.cc serves a row, or says why it does not";
  for (const auto& [op, count] : times) EXPECT_NE(Catalogue().Find(op), nullptr) << op;
}

// The tables of docs/libtorch.md: rows with equal cells share a line.
std::string Page() {
  std::map<std::pair<std::string, std::string>, std::string> served;
  std::map<std::string, std::string> others;
  const auto append = [](std::string& ops, const char* op) {
    ops += (ops.empty() ? "`" : ", `") + std::string(op) + "`";
  };
  for (const TorchOp& row : TorchOps()) {
    const DTypeSet all = KeyTypesOf(*Catalogue().Find(row.op)), types = all - (all - row.dtypes);
    std::string cell = row.restriction;
    if (*row.others) cell += row.others;
    if (!row.only_cpu.Empty()) cell += "on GPUs not " + (types - (types - row.only_cpu)).ToString();
    append(served[{types == all ? "all" : types.ToString(), cell}], row.op);
  }
  for (const UnsupportedOp& row : UnsupportedOps()) append(others[row.reason], row.op);
  std::string page = "| rows | of their types | restriction |\n|---|---|---|\n";
  for (const auto& [key, ops] : served)
    page += fmt::format("| {} | {} | {} |\n", ops, key.first, key.second);
  page += "\n| rows that it does not serve | why |\n|---|---|\n";
  for (const auto& [reason, ops] : others) page += fmt::format("| {} | {} |\n", ops, reason);
  return page;
}

TEST(TorchOps, AreThoseOfThePage) {
  std::ifstream file(OPWIRE_DOCS "/libtorch.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(Page()), std::string::npos) << "docs/libtorch.md should hold\n"
                                                        << Page();
}

// ---- The module

#define SKIP_WITHOUT_MODULE()                        \
  if (std::string_view(OPWIRE_TORCH_MODULE).empty()) \
  GTEST_SKIP() << "opwire_torch.so was not built: cmake found no torch (OPWIRE_TORCH_DIR)"

// A host that counts, and refuses from a limit on.
struct Host {
  opw_torch_host host{this, "cpu", 0, 0, Allocate, Free, [](void*) -> void* { return nullptr; },
                      Fail};
  int64_t limit = int64_t{1} << 40, in_use = 0, peak = 0;
  std::map<void*, int64_t> blocks;
  Status failure;

  static void* Allocate(void* context, int64_t bytes, char* why, int64_t why_bytes) {
    Host& self = *static_cast<Host*>(context);
    if (self.in_use + bytes > self.limit) {
      std::strncpy(why, "full to the brim", static_cast<size_t>(why_bytes));
      return nullptr;
    }
    void* const memory = std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64));
    self.blocks[memory] = bytes;
    self.peak = std::max(self.peak, self.in_use += bytes);
    return memory;
  }
  static void Free(void* context, void* memory) {
    Host& self = *static_cast<Host*>(context);
    ASSERT_TRUE(self.blocks.contains(memory));
    self.in_use -= self.blocks[memory];
    self.blocks.erase(memory);
    std::free(memory);
  }
  static void Fail(void* context, int32_t code, const char* message) {
    static_cast<Host*>(context)->failure = Status(static_cast<absl::StatusCode>(code), message);
  }
};

class TorchSession : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_MODULE();
    ASSERT_OK_AND(module_, OpenModule(OPWIRE_TORCH_MODULE));
    ASSERT_EQ(module_->open(&host_.host, &session_), OPW_OK) << host_.failure;
  }
  void TearDown() override {
    if (session_) module_->close(session_);
  }

  // A reduction of f32[rows, columns] over its last axis.
  int Reduce(const char* op, int64_t rows, int64_t columns) {
    std::vector<float> x(static_cast<size_t>(rows * columns), 2), y(static_cast<size_t>(rows));
    const int64_t shape[] = {rows, columns}, strides[] = {columns, 1}, axis[] = {1}, one[] = {1};
    const opw_tensor operand{x.data(), shape, strides, rows * columns, OPW_F32, 0, 2, 1},
        result{y.data(), shape, one, rows, OPW_F32, 0, 1, 1};
    const opw_attr attrs[] = {{OPW_ATTR_INTS, 0, 1, {.ints = axis}},
                              {OPW_ATTR_INT, 0, 1, {.i = 0}}};
    return Run(op, {operand}, {result}, attrs);
  }
  // softmax of f16[rows, 100], by way of f32.
  int Softmax(int64_t rows) {
    std::vector<uint16_t> x(static_cast<size_t>(rows * 100)), y(x.size(), 7);
    const int64_t shape[] = {rows, 100}, strides[] = {100, 1};
    const opw_tensor operand{x.data(), shape, strides, rows * 100, OPW_F16, 0, 2, 1};
    opw_tensor result = operand;
    result.data = y.data();
    const opw_attr attrs[] = {{OPW_ATTR_INT, 0, 1, {.i = -1}}};
    const int rc = Run("softmax", {operand}, {result}, attrs);
    if (rc == OPW_OK) {
      EXPECT_EQ(y[static_cast<size_t>(rows * 100 - 1)], 0x211f);  // 0.01
    }
    return rc;
  }
  int Run(const char* op, const std::vector<opw_tensor>& operands,
          const std::vector<opw_tensor>& results, const opw_attr* attrs) {
    std::vector<uint32_t> starts(operands.size() + 1);
    for (uint32_t i = 0; i < starts.size(); ++i) starts[i] = i;
    opw_runtime runtime{OPW_ABI_VERSION, 1, nullptr, nullptr, nullptr};
    const opw_call call{operands.data(), starts.data(), results.data(), attrs, nullptr, nullptr, 0,
                        &runtime,        nullptr};
    return module_->run(session_, module_->find(op), &call);
  }

  Host host_;
  const opw_torch_module* module_ = nullptr;
  void* session_ = nullptr;
};

TEST_F(TorchSession, ServesEveryRowOfTheTable) {
  for (const TorchOp& row : TorchOps()) EXPECT_GE(module_->find(row.op), 0) << row.op;
  EXPECT_EQ(module_->find("no_such_op"), -1);
}

TEST_F(TorchSession, TemporariesAreTheHostsAndGoBackWithTheCall) {
  ASSERT_EQ(Softmax(3), OPW_OK) << host_.failure;
  const int64_t kept = host_.in_use;  // what libtorch makes once
  host_.peak = 0;
  ASSERT_EQ(Softmax(1000), OPW_OK) << host_.failure;
  EXPECT_GE(host_.peak, 1000 * 100 * 4);
  EXPECT_EQ(host_.in_use, kept);
}

TEST_F(TorchSession, RefusedMemoryIsResourceExhaustedAndTheNextCallRuns) {
  host_.limit = host_.in_use + 1000;
  EXPECT_EQ(Softmax(1000), OPW_FAILED);
  EXPECT_TRUE(Says(host_.failure, absl::StatusCode::kResourceExhausted, "full to the brim"));
  EXPECT_LE(host_.in_use, host_.limit);
  host_.limit = int64_t{1} << 40;
  EXPECT_EQ(Softmax(1000), OPW_OK) << host_.failure;
}

TEST_F(TorchSession, ExceptionsOfAtenAreStatuses) {
  EXPECT_EQ(Reduce("amax", 3, 4), OPW_OK) << host_.failure;
  EXPECT_EQ(Reduce("amax", 3, 0), OPW_FAILED);
  EXPECT_TRUE(Says(host_.failure, absl::StatusCode::kOutOfRange, "libtorch: amax()"));
  EXPECT_EQ(MessageOf(host_.failure).find('\n'), std::string::npos);
}

TEST_F(TorchSession, ADeviceItHasNothingForIsRefused) {
  Host other;
  other.host.kind = "toaster";
  void* session = nullptr;
  EXPECT_EQ(module_->open(&other.host, &session), OPW_FAILED);
  EXPECT_TRUE(Says(other.failure, absl::StatusCode::kUnimplemented,
                   "nothing for a device of kind toaster"));
}

TEST_F(TorchSession, AGpuWithoutItsLibrariesIsRefused) {
  ASSERT_OK_AND(const auto probes, StatusOr<std::vector<DeviceProbe>>(ProbeDevices()));
  for (const DeviceProbe& p : probes) {
    if (p.usable && p.spec.starts_with("cuda")) GTEST_SKIP() << "there is a GPU";
  }
  Host other;
  other.host.kind = "cuda";
  void* session = nullptr;
  EXPECT_EQ(module_->open(&other.host, &session), OPW_FAILED);
  EXPECT_FALSE(other.failure.ok());
}

TEST(TorchVariants, ComeAfterProductionAndBeforeTheReference) {
  SKIP_WITHOUT_MODULE();
  const Setting setting("OPWIRE_TORCH", OPWIRE_TORCH_MODULE);
  ASSERT_OK_AND(const auto device, OpenDevice("cpu", {}));
  VariantTable table = BuildVariantTable(*device);
  const auto chosen = [&]() -> Candidate {
    for (const Candidate& c : table.Explain("softmax", DType::kF32)) {
      if (c.chosen) return c;
    }
    return {};
  };
  EXPECT_EQ(chosen().variant->tier, Tier::kProduction);
  Steering steering;
  for (const Variant& v : table.Of("softmax")) {
    if (v.tier == Tier::kProduction) steering.forbid.push_back("softmax@" + v.name);
  }
  table.Steer(steering);
  EXPECT_EQ(chosen().variant->name, "torch");
  EXPECT_EQ(chosen().reason, "first of tier libtorch");
}

}  // namespace
}  // namespace opwire::torch
