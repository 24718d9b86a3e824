// A dense array in this process: what goes into a run and what comes out of it.
#ifndef OPWIRE_FRONTEND_CPP_ARRAY_H_
#define OPWIRE_FRONTEND_CPP_ARRAY_H_

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/type.h"

namespace opwire::client {

// Borrowed memory of a row-major array, dense but where its encoding says otherwise.
struct ArrayView {
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  int64_t bytes = 0;
  Encoding encoding = Encoding::kDense;
};

// Leaves new elements as they are: what is about to be filled need not be zeroed first.
template <typename T>
struct NoInitAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = NoInitAllocator<U>;
  };
  template <typename U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <typename U, typename... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
};

class Array {
 public:
  Array() = default;
  // Zeros. REQUIRES: the byte count does not overflow.
  Array(DType dtype, std::vector<int64_t> shape) : Array(Uninitialised(dtype, std::move(shape))) {
    if (!bytes_.empty()) std::memset(bytes_.data(), 0, bytes_.size());
  }
  static Array Uninitialised(DType dtype, std::vector<int64_t> shape) {
    Array a;
    a.dtype_ = dtype;
    a.shape_ = std::move(shape);
    a.bytes_.resize(
        static_cast<size_t>(TensorBytes(dtype, Encoding::kDense, a.shape_).value_or(0)));
    return a;
  }
  template <typename T>
  static Array Of(DType dtype, std::vector<int64_t> shape, std::span<const T> values) {
    Array a = Uninitialised(dtype, std::move(shape));
    std::memcpy(a.bytes_.data(), values.data(), std::min(a.bytes_.size(), values.size_bytes()));
    return a;
  }

  // .npy files. NOT_FOUND, INVALID_ARGUMENT, UNIMPLEMENTED for element types NumPy lacks.
  static StatusOr<Array> ReadNpy(const std::string& path);
  Status WriteNpy(const std::string& path) const;
  // Reproducible values: floats uniform in [-1, 1), integers in [0, 8), bools.
  static Array Random(DType dtype, std::vector<int64_t> shape, uint64_t seed);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return CheckedElements(shape_).value_or(0); }
  std::span<uint8_t> bytes() { return bytes_; }
  std::span<const uint8_t> bytes() const { return bytes_; }
  // REQUIRES: sizeof(T) is the element size.
  template <typename T>
  std::span<const T> values() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <typename T>
  std::span<T> values() {
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  ArrayView view() const {
    return {dtype_, shape_, bytes_.data(), static_cast<int64_t>(bytes_.size())};
  }

 private:
  DType dtype_ = DType::kInvalid;
  std::vector<int64_t> shape_;
  std::vector<uint8_t, NoInitAllocator<uint8_t>> bytes_;
};

}  // namespace opwire::client

#endif  // OPWIRE_FRONTEND_CPP_ARRAY_H_
