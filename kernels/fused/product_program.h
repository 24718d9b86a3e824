// Products of a few rows with several weights, what their rows are before and what becomes of the
// sums, as one kernel: the step between two values of a decoder that must be in memory.
//
//   x [rows, terms] ─▶ x + residual ─▶ rms_norm ─▶ by each weight [columns, terms] ─▶ a scalar
//   program, or a rotation ─▶ dense, or into a cache
//
// The products of a section share its columns and what becomes of them: silu(gate) * up. Sections
// have weights of their own: queries, keys and values.
//
// Of many rows there is one product of rows as they are, which is rounded to the type, and a scalar
// program behind it.
#ifndef OPWIRE_KERNELS_FUSED_PRODUCT_PROGRAM_H_
#define OPWIRE_KERNELS_FUSED_PRODUCT_PROGRAM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/dtype.h"
#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

struct ProductProgram {
  static constexpr int kMaxRows = 2, kMaxProducts = 2, kMaxSections = 8;

  // As rms_norm and add_rms_norm, over the terms of a row; what is normalised is rounded to the
  // type before it meets weights.
  struct Norm {
    bool adds;  // a residual, and the sum is a result
    bool weighted;
    double eps;
  };
  // As rotary_embedding of all elements of heads, whose rows are at one position.
  struct Turn {
    double theta, scale;
    bool interleaved, inverse;
  };
  struct Section {
    int products = 1;
    int64_t columns = 0;
    // Its inputs are the sums of the products, of f32, and then tensors of the type of [rows,
    // columns] or, for biases, [columns].
    ScalarProgram finish;
    std::vector<bool> by_row;  // by input behind the sums: of [rows, columns]
    int64_t depth = 0;         // of heads, where columns are those of heads: of a turn, or a cache
    std::optional<Turn> turn;  // of what `finish` gives, one f32
    int64_t places = 0;  // of the cache [columns / depth, places, depth] that rows are appended to;
                         // 0: none, they are results
  };

  bool many() const { return rows > kMaxRows; }
  // Whether it is what there is of many rows.
  bool IsEpilogue() const {
    return many() && sections.size() == 1 && sections[0].products == 1 && !norm &&
           !sections[0].turn && sections[0].places == 0;
  }

  DType type =
      DType::kInvalid;  // f32, f16 or bf16: of all tensors but positions, which are i64 or i32
  int64_t rows = 0, terms = 0;
  std::optional<Norm> norm;
  std::vector<Section> sections;
  DType positions = DType::kInvalid;  // the type of those of turns; invalid: nothing turns
  DType at =
      DType::kInvalid;  // the type of the position in all caches; invalid: nothing is appended

  // A call's operands: x, the residual, the norm's weight, [positions], the position in the caches,
  // each where there is one; then by section its weights, the other inputs, and the cache. Its
  // results: the sum with the residual; then by section what `finish` gives, or the turned rows, or
  // the cache, whose place it has or whose elements it gets. Attributes are the arguments of all
  // sections, one after another.
  size_t Operands() const;
  size_t Results() const;
  int Arguments() const;
  // Bytes that are equal for equal programs only.
  std::string Identity() const;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_PRODUCT_PROGRAM_H_
