// Deaths that are counted across processes, and what they withdraw.
#include "kernels/select/quarantine.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "kernels/fused/fuser.h"
#include "tests/folder.h"

namespace opwire {
namespace {

int RunNothing(const opw_call*) { return OPW_OK; }

KernelSet Adders() {
  KernelSet set;
  VariantTable& t = set.variants;
  const opw_kernel kernel = {OPW_ABI_VERSION, 0, nullptr, nullptr, nullptr, RunNothing, nullptr};
  t.Add({"add", "reference", Tier::kReference, 0, kArithmetic, "", "builtin", kernel});
  t.Add({"add", "fast", Tier::kProduction, 2, kFloats, "", "builtin", kernel});
  t.Add({"add", "absent", Tier::kProduction, 4, kFloats, "needs a thing", "builtin", kernel});
  struct NoFuser final : fused::Fuser {
    std::shared_ptr<const opw_kernel> Get(const fused::ScalarProgram&) override { return nullptr; }
    bool Settled() const override { return true; }
  };
  set.fuser = std::make_shared<NoFuser>();
  return set;
}

class QuarantineTest : public testing::Test {
 protected:
  // What runs add after an executor in which `died` took the one before it down.
  std::string Chosen(std::string_view died, std::string_view context = "here") {
    set_ = Adders();
    quarantined_ = Quarantine(set_, folder_.path(), context, died);
    return (*set_.variants.Choose("add", DType::kF32, opw_call{}, ""))->name;
  }
  std::string Reason(std::string_view name) {
    for (const Variant& v : set_.variants.variants()) {
      if (v.name == name) return v.unavailable;
    }
    return "no such variant";
  }

  Folder folder_;
  KernelSet set_;
  Quarantined quarantined_;
};

TEST_F(QuarantineTest, ComesWithTheSecondDeathAndStays) {
  EXPECT_EQ(Chosen(""), "fast");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_EQ(Chosen("add@fast"), "fast");
  EXPECT_EQ(Chosen(""), "fast");
  EXPECT_EQ(Chosen("add@fast", "elsewhere"), "fast");
  EXPECT_EQ(Chosen("add@fast"), "reference");
  EXPECT_EQ(Chosen(""), "reference");
  EXPECT_NE(
      Reason("fast").find("quarantined: executors died in it 2 times; remove " + folder_.path()),
      std::string::npos)
      << Reason("fast");
  EXPECT_EQ(Chosen("", "elsewhere"), "fast");
  // A pin does not get around it.
  Chosen("");
  EXPECT_EQ(set_.variants.Choose("add", DType::kF32, opw_call{}, "fast").status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::filesystem::remove_all(folder_.path());
  std::filesystem::create_directory(folder_.path());
  EXPECT_EQ(Chosen(""), "fast");
}

TEST_F(QuarantineTest, LeavesReferencesAndWhatIsNotThere) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Chosen("add@reference"), "fast");
    EXPECT_EQ(Chosen("add@absent"), "fast");
    EXPECT_EQ(Chosen("user.mine@own"), "fast");
  }
  EXPECT_EQ(Reason("reference"), "");
  EXPECT_EQ(Reason("absent"), "needs a thing");
}

TEST_F(QuarantineTest, NothingIsFusedAfterTwoDeathsInGroups) {
  EXPECT_EQ(Chosen("fused"), "fast");
  EXPECT_NE(set_.fuser, nullptr);
  EXPECT_EQ(Chosen("fused"), "fast");
  EXPECT_EQ(set_.fuser, nullptr);
  EXPECT_NE(quarantined_.why_not_fused.find("died in it 2 times"), std::string::npos)
      << quarantined_.why_not_fused;
  Chosen("");
  EXPECT_EQ(set_.fuser, nullptr) << "it stays";
}

TEST_F(QuarantineTest, DoesWithoutAFileThatCannotBeUsed) {
  Chosen("add@fast");
  const std::filesystem::path file = std::filesystem::directory_iterator(folder_.path())->path();
  std::ofstream(file) << std::string(100'000, 'x') << "\n\0\n\nadd@fast\nadd@fast";
  EXPECT_EQ(Chosen(""), "fast") << "the last line is not whole";
  std::filesystem::remove(file);
  std::filesystem::create_symlink("/etc/passwd", file);
  EXPECT_EQ(Chosen("add@fast"), "fast");
  KernelSet set = Adders();
  Quarantine(set, "", "here", "add@fast");
  Quarantine(set, "/nonexistent", "here", "add@fast");
  EXPECT_EQ((*set.variants.Choose("add", DType::kF32, opw_call{}, ""))->name, "fast");
}

}  // namespace
}  // namespace opwire
