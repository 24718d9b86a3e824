// A directory of a test's own.
#ifndef OPWIRE_TESTS_FOLDER_H_
#define OPWIRE_TESTS_FOLDER_H_

#include <string>

namespace opwire {

// Goes with its owner.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // The file's path; folders on the way are made.
  std::string Write(const std::string& name, const std::string& text, int mode = 0644) const;

 private:
  std::string path_;
};

// Where a test keeps the kernels that it compiles: in ctest's folder, OPWIRE_CACHE, which outlives
// the build, or in its own.
std::string KernelCache(const Folder& own);

}  // namespace opwire

#endif  // OPWIRE_TESTS_FOLDER_H_
