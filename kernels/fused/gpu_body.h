// What happens to one element of a scalar program, as statements of GPU code over the functions of
// primitives.cuh.
//
//   const GpuBody body(program);
//   text += fmt::format("OPW_DEVICE void Apply({}) {{\n{}}}\n", body.Parameters(),
//       body.Statements());
#ifndef OPWIRE_KERNELS_FUSED_GPU_BODY_H_
#define OPWIRE_KERNELS_FUSED_GPU_BODY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/abi.h"
#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

// A program that is a part of a larger one.
struct GpuPart {
  std::vector<bool> narrow;  // by instruction: what it computes becomes a value of 16 bits or
                             // fewer, whatever its type here
  std::vector<bool> passed;  // by output: it goes to another part, for which any NaN will do
};

class GpuBody {
 public:
  // REQUIRES: program.Check().ok(); both outlive it. Without a part it is a whole program.
  explicit GpuBody(const ScalarProgram& program, const GpuPart* part = nullptr)
      : program_(program), part_(part), held_(HowHeld(program)) {}

  // Whether an output is handed out as the f32 that its store rounds to 16 bits.
  bool RoundsLate(size_t output) const;
  // "bf16 x0, f32 x1, float& y0, const u64* arguments, u32& flags": inputs, outputs, and the last
  // two where the program has some and may raise some.
  std::string Parameters() const;
  std::string Statements() const;

 private:
  const Instruction& At(int value) const {
    return program_.instructions()[static_cast<size_t>(value)];
  }
  const Held& HeldOf(int value) const { return held_[static_cast<size_t>(value)]; }
  std::string Computed(int value) const;
  std::string Canonical(int value) const;
  std::string Expression(int value) const;
  std::string Cast(const Instruction& one) const;
  bool HasNear(int value) const;
  bool OnlyBesideOne(int value) const;
  // What an output is stored from: a value, or what is cast to it last.
  int StoredFrom(size_t output) const;

  const ScalarProgram& program_;
  const GpuPart* const part_;
  const std::vector<Held> held_;
};

// Whether there is a cheaper body for values of a type.
bool HasNear(Prim prim, DType type);
// f16 or bf16.
bool HasSixteenBits(DType type);
// Of the program's inputs, then its outputs.
DType TypeOfTensor(const ScalarProgram& program, size_t tensor);
// Whether it may raise flags.
bool Raises(const ScalarProgram& program);
// `arguments` are the program's, as a call's attributes: the bits of each in its computing type, or
// one 0 where there are none.
std::vector<uint64_t> ArgumentBits(const ScalarProgram& program,
                                   std::span<const opw_attr> arguments);

// The bytes of a structure that a kernel takes, field by field.
class ParamBytes {
 public:
  // Tensors' addresses, 8 bytes each, and a reporter (kernels/device/gpu/flags.h) behind them,
  // which are filled in later.
  explicit ParamBytes(size_t tensors);
  template <typename T>
  void Put(const T& value) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  // opw::Axes of so many axes; strides by tensor.
  void PutAxes(int rank, const std::vector<int64_t>& extents,
               const std::vector<std::vector<int64_t>>& strides);
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_GPU_BODY_H_
