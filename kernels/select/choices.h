// Chooses by measurement which of several variants of a tier runs a class of calls. A choice is
// made once and kept in a file. It then holds for every later run, in this process and in later
// ones, so results keep their bits.
//
//   std::shared_ptr<Choices> choices = Choices::Open(directory, context);
//   if (const Choice* c = choices->Find(key)) ...  // c->order[0] is the fastest
//   else choices->Keep(key, choice);  // of times by MeasureCall
#ifndef OPWIRE_KERNELS_SELECT_CHOICES_H_
#define OPWIRE_KERNELS_SELECT_CHOICES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/base/owned_fd.h"
#include "ir/ops/catalogue.h"
#include "kernels/abi.h"

namespace opwire {

struct Choice {
  // Variants in order of preference, each with the measured time of a call in nanoseconds.
  std::vector<std::pair<std::string, double>> order;
};

class Choices {
 public:
  // Opens the file in `directory` that is named after `context`. The context is all that the
  // measurements depend on (device, its driver and libraries, this release). Without a directory,
  // or if the file cannot be read or written, choices live as long as this object.
  static std::shared_ptr<Choices> Open(const std::string& directory, std::string_view context);

  // The result is valid as long as this object; null if no choice was made. Any thread.
  const Choice* Find(const std::string& key);
  // Returns the choice that holds afterwards: this one, unless another process made one first. Any
  // thread.
  const Choice* Keep(const std::string& key, Choice choice);
  // Every choice whose key begins with this ("matmul f32").
  std::vector<std::pair<std::string, Choice>> Of(std::string_view prefix);

 private:
  Choices() = default;
  void ReadOn();  // reads the lines that were appended to the file since the last read

  std::mutex mutex_;
  std::map<std::string, Choice, std::less<>> known_;
  OwnedFd fd_;
  int64_t read_ = 0;  // bytes of the file that are in known_
};

// "f32[7,8] f32[8,6] {0,1}": element types, the number of bits of each extent, and the attributes
// that are whole numbers. Calls of one class are assumed to cost the same.
std::string ClassOf(const opw_call& call, const OpDef& row);

// Returns the time of a call of these sizes in nanoseconds: the least of a few runs over memory of
// zeros. nullopt if the call cannot be prepared.
std::optional<double> MeasureCall(const opw_kernel& kernel, const opw_call& sizes,
                                  const OpDef& row);

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_CHOICES_H_
