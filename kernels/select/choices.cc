// The file of choices: lines of "KEY <tab> VARIANT=NANOSECONDS ...", only ever appended to; the
// first line of a key holds.
#include "kernels/select/choices.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>

#include "ir/base/dtype.h"
#include "kernels/device/host_runtime.h"
#include "kernels/select/context_file.h"

namespace opwire {
namespace {

constexpr int64_t kMaxFileBytes = 16 << 20;

// Nothing where the line is no choice.
std::pair<std::string, Choice> ReadLine(std::string_view line) {
  std::pair<std::string, Choice> out;
  const size_t tab = line.find('\t');
  if (tab == line.npos) return out;
  out.first = line.substr(0, tab);
  line.remove_prefix(tab + 1);
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    const size_t equals = word.find('=');
    double ns = 0;
    if (equals == word.npos ||
        std::from_chars(word.data() + equals + 1, word.data() + word.size(), ns).ec != std::errc())
      return {};
    out.second.order.emplace_back(word.substr(0, equals), ns);
  }
  return out;
}

std::string WriteLine(const std::string& key, const Choice& choice) {
  std::string line = key + "\t";
  for (const auto& [variant, ns] : choice.order)
    line += fmt::format("{}{}={:.0f}", line.back() == '\t' ? "" : " ", variant, ns);
  return line + "\n";
}

}  // namespace

std::shared_ptr<Choices> Choices::Open(const std::string& directory, std::string_view context) {
  std::shared_ptr<Choices> choices(new Choices);
  if (!directory.empty()) {
    choices->fd_ = OpenToAppend(directory + "/" + ContextFileName("choices", context));
  }
  choices->ReadOn();
  return choices;
}

const Choice* Choices::Find(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto it = known_.find(key);
  return it == known_.end() ? nullptr : &it->second;
}

const Choice* Choices::Keep(const std::string& key, Choice choice) {
  std::lock_guard lock(mutex_);
  if (fd_.get() >= 0 && flock(fd_.get(), LOCK_EX) == 0) {
    ReadOn();
    if (!known_.contains(key) && read_ < kMaxFileBytes) {
      const std::string line = WriteLine(key, choice);
      if (write(fd_.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()))
        read_ += static_cast<int64_t>(line.size());
    }
    flock(fd_.get(), LOCK_UN);
  }
  return &known_.try_emplace(key, std::move(choice)).first->second;
}

std::vector<std::pair<std::string, Choice>> Choices::Of(std::string_view prefix) {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, Choice>> out;
  for (auto it = known_.lower_bound(prefix); it != known_.end() && it->first.starts_with(prefix);
       ++it)
    out.push_back(*it);
  return out;
}

void Choices::ReadOn() {
  struct stat st;
  if (fd_.get() < 0 || fstat(fd_.get(), &st) != 0 || st.st_size <= read_ ||
      st.st_size > kMaxFileBytes)
    return;
  std::string text(static_cast<size_t>(st.st_size - read_), 0);
  if (pread(fd_.get(), text.data(), text.size(), read_) != static_cast<ssize_t>(text.size()))
    return;
  std::string_view rest = text;
  for (size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
    auto [key, choice] = ReadLine(rest.substr(0, end));
    if (!choice.order.empty()) known_.try_emplace(std::move(key), std::move(choice));
    read_ += static_cast<int64_t>(end) + 1;
  }
}

std::string ClassOf(const opw_call& call, const OpDef& row) {
  std::string out;
  for (uint32_t i = 0; i < call.starts[row.operands.size()]; ++i) {
    const opw_tensor& t = call.operands[i];
    out +=
        fmt::format("{}{}", i ? " " : "", t.dtype ? DTypeName(static_cast<DType>(t.dtype)) : "-");
    if (t.encoding != 0) out += fmt::format(":{}", EncodingName(static_cast<Encoding>(t.encoding)));
    out += '[';
    for (int a = 0; a < t.rank; ++a)
      out += fmt::format("{}{}", a ? "," : "", std::bit_width(static_cast<uint64_t>(t.shape[a])));
    out += "]";
  }
  std::string attrs;
  for (size_t i = 0; i < row.attrs.size(); ++i) {
    if (call.attrs[i].kind == OPW_ATTR_INT)
      attrs += fmt::format("{}{}", attrs.empty() ? "" : ",", call.attrs[i].value.i);
  }
  return attrs.empty() ? out : out + " {" + attrs + "}";
}

std::optional<double> MeasureCall(const opw_kernel& kernel, const opw_call& sizes,
                                  const OpDef& row) {
  constexpr int kRuns = 5;
  constexpr size_t kAlign = 64;
  std::vector<std::unique_ptr<uint8_t[]>> memory;
  const auto allocate = [&](int64_t bytes) -> void* {
    memory.push_back(std::make_unique<uint8_t[]>(static_cast<size_t>(bytes) + kAlign));
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.back().get()) + kAlign - 1) /
                                   kAlign * kAlign);
  };
  const auto filled = [&](const opw_tensor* tensors, size_t count) {
    std::vector<opw_tensor> out(tensors, tensors + count);
    for (opw_tensor& t : out) {
      if (t.dtype == 0) continue;
      const BlockLayout layout =
          LayoutOf(static_cast<DType>(t.dtype), static_cast<Encoding>(t.encoding));
      t.data = allocate(t.elements / layout.elements * layout.bytes);
    }
    return out;
  };
  const std::vector<opw_tensor> operands =
                                    filled(sizes.operands, sizes.starts[row.operands.size()]),
                                results = filled(sizes.results, row.CountResults(sizes.starts));
  opw_call call = sizes;
  call.context = kernel.context;
  call.state = nullptr;
  call.workspace_bytes = 0;
  if (kernel.prepare && kernel.prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK)
    return std::nullopt;
  constexpr int64_t kMostWorkspace = int64_t{256} << 20;  // it was to be a small call
  if (call.workspace_bytes < 0 || call.workspace_bytes > kMostWorkspace) {
    if (kernel.release) kernel.release(call.state);
    return std::nullopt;
  }
  call.workspace = allocate(call.workspace_bytes);
  call.operands = operands.data();
  call.results = results.data();
  double best = 1e18;
  const HostRuntime::Together together;
  for (int i = 0; i <= kRuns; ++i) {  // the first warms up
    const auto begun = std::chrono::steady_clock::now();
    const int rc = kernel.run(&call);
    if (rc != OPW_OK) best = 1e18;
    if (rc != OPW_OK) break;
    if (i > 0)
      best = std::min(
          best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begun)
                    .count());
  }
  if (kernel.release) kernel.release(call.state);
  return best < 1e18 ? std::optional(best) : std::nullopt;
}

}  // namespace opwire
