// Writing kernels around templates, compiling and loading them.
#include "kernels/ops/gpu/code.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <set>
#include <vector>

#include "kernels/jit/gpu_text.h"

namespace opwire::gpu {
namespace {

constexpr std::string_view kPlaceholder = "OPW_KERNEL";

KernelText KernelOf(const CodeInstance& i) {
  const std::string bounds = i.blocks > 0 ? fmt::format("{}, {}", i.threads, i.blocks) : fmt::format("{}", i.threads);
  const std::string cluster = i.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", i.cluster) : "";
  return {fmt::format("{} {}", i.file, i.call), std::string(i.file),
          fmt::format("\nextern \"C\" __global__ void {}__launch_bounds__({}) {}(OPW_PARAM opw::{} p) {{\n  using namespace opw;\n  {}(p);\n}}\n", cluster, bounds,
                      kPlaceholder, i.params, i.call)};
}

}  // namespace

std::string UnitOf(std::span<const KernelText> kernels) {
  std::set<std::string, std::less<>> seen;
  std::string out;
  jit::AppendGpuSource(kernels[0].prelude, seen, out);
  for (size_t i = 0; i < kernels.size(); ++i) {
    std::string_view rest = kernels[i].text;
    for (size_t at; (at = rest.find(kPlaceholder)) != rest.npos; rest.remove_prefix(at + kPlaceholder.size())) {
      out += rest.substr(0, at);
      out += fmt::format("k{}", i);
    }
    out += rest;
  }
  return out;
}

std::string_view BitsName(int64_t bytes) { return CodeName(bytes == 1 ? DType::kU8 : bytes == 2 ? DType::kU16 : bytes == 4 ? DType::kU32 : DType::kU64); }
std::string_view CodeName(DType type) {
  static constexpr std::string_view kNames[kDTypeCount] = {"",    "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64",
                                                           "i32", "i16", "i8",  "u64", "u32",  "u16",    "u8",     "boolean"};
  return kNames[static_cast<int>(type)];
}

std::string_view ComputeName(DType type) {
  if (type == DType::kBool) return "bool";
  return kFloats.Has(type) || kFloat8s.Has(type) ? (type == DType::kF64 ? "f64" : "f32") : CodeName(type);
}

Code::~Code() {
  for (const Module m : modules_) device_.UnloadModule(m);
}

int Code::cluster_blocks() const {
  int architecture = 0;
  if (!device_.info().arch.starts_with("sm_")) return 1;
  const std::string_view number = std::string_view(device_.info().arch).substr(3);
  std::from_chars(number.data(), number.data() + number.size(), architecture);
  return architecture >= 90 ? 8 : 1;
}

StatusOr<Function> Code::Get(const CodeInstance& i) {
  const std::string key = fmt::format("{} {} {} {} {} {}", i.file, i.call, i.params, i.threads, i.blocks, i.cluster);
  {
    std::lock_guard lock(mutex_);
    if (const auto it = loaded_.find(key); it != loaded_.end()) return it->second;
  }
  OPWIRE_ASSIGN_OR_RETURN(const Function f, Load(KernelOf(i)));
  std::lock_guard lock(mutex_);
  loaded_.emplace(key, f);
  return f;
}

StatusOr<Function> Code::GetText(const KernelText& kernel) {
  {
    std::lock_guard lock(mutex_);
    if (const auto it = loaded_.find(kernel.text); it != loaded_.end()) return it->second;
  }
  OPWIRE_ASSIGN_OR_RETURN(const Function f, Load(kernel));
  std::lock_guard lock(mutex_);
  loaded_.emplace(kernel.text, f);
  return f;
}

StatusOr<Function> Code::Load(const KernelText& kernel) {
  if (record_) {
    record_(kernel);
    return nullptr;
  }
  jit::CompileRequest request;
  request.name = kernel.name;
  request.text = UnitOf({&kernel, 1});
  request.arch = device_.info().arch;
  {
    std::lock_guard lock(mutex_);
    if (!cache_) {
      OPWIRE_ASSIGN_OR_RETURN(cache_, jit::BuildCache::Open({.directory = cache_directory_}));
    }
  }
  OPWIRE_ASSIGN_OR_RETURN(const jit::CacheEntry entry, cache_->Get(*toolchain_, request));
  std::ifstream in(entry.object, std::ios::binary);
  std::string image((std::istreambuf_iterator<char>(in)), {});
  if (!in) return Internal("{}: {} cannot be read", kernel.name, entry.object);
  OPWIRE_ASSIGN_OR_RETURN(const Module module, device_.LoadModule(image));
  std::lock_guard lock(mutex_);
  modules_.push_back(module);
  return device_.FindFunction(module, "k0");
}

}  // namespace opwire::gpu
