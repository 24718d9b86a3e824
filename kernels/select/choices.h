// Which of several variants of a tier runs a call, by measurement, for each class of calls. A
// choice is made once and kept in a file, so that it holds for every later run, in this process and
// the next: results keep their bits.
//
//   std::shared_ptr<Choices> choices = Choices::Open(directory, context);
//   if (const Choice* c = choices->Find(key)) ...  // c->order[0] is the fastest
//   else choices->Keep(key, Measured(...));
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
  // Variants, the one to take first at the front, with what a call took in nanoseconds.
  std::vector<std::pair<std::string, double>> order;
};

class Choices {
 public:
  // Those of the file in `directory` that is named after `context`: all that what was measured
  // depends on (device, its driver and libraries, this release). Without a directory, or where the
  // file cannot be read or written, choices live as long as this object.
  static std::shared_ptr<Choices> Open(const std::string& directory, std::string_view context);

  // Valid as long as this object; null: none was made. Any thread.
  const Choice* Find(const std::string& key);
  // The choice that holds from here on: this one, unless another process made one first. Any
  // thread.
  const Choice* Keep(const std::string& key, Choice choice);
  // Every choice whose key begins with this ("matmul f32").
  std::vector<std::pair<std::string, Choice>> Of(std::string_view prefix);

 private:
  Choices() = default;
  void ReadOn();  // what was appended to the file since

  std::mutex mutex_;
  std::map<std::string, Choice, std::less<>> known_;
  OwnedFd fd_;
  int64_t read_ = 0;  // bytes of the file that are in known_
};

// "f32[7,8] f32[8,6] {0,1}": element types, of each extent how many bits it has, and what
// attributes are whole numbers. Calls of one class are taken to cost alike.
std::string ClassOf(const opw_call& call, const OpRow& row);

// What a call of these sizes takes, in nanoseconds: the least of a few runs over memory of zeros.
// None: it could not be prepared.
std::optional<double> MeasureCall(const opw_kernel& kernel, const opw_call& sizes,
                                  const OpRow& row);

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_CHOICES_H_
