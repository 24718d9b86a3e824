// A group of elementwise ops and reductions along the last axis, as what is done to one row: a
// softmax of rows, written as plain ops.
//
//   RowProgram p;  // exp(x - max(x)) / sum of these, of rows of f16
//   const int x = p.AddInput(DType::kF16, RowProgram::kElements);
//   const int m = p.Reduce(ReduceKind::kMax, x);
//   OPWIRE_ASSIGN_OR_RETURN(const int d, p.Append(*Catalogue().Find("sub"), {{x, m}}, {},
//       DType::kF16));
//   OPWIRE_ASSIGN_OR_RETURN(const int e, p.Append(*Catalogue().Find("exp"), {{d}}, {},
//       DType::kF16));
//   const int s = p.Reduce(ReduceKind::kSum, e);
//   OPWIRE_ASSIGN_OR_RETURN(const int y, p.Append(*Catalogue().Find("div"), {{e, s}}, {},
//       DType::kF16));
//   p.AddOutput(y, RowProgram::kElements);
//
// A value is one of each element of the row, or one of the row, which its elements read alike. What
// a reduction gives is another input of the scalar program that holds the instructions. f16, bf16
// and the 8-bit floats compute and are reduced in f32, rounded where they are cast to and where
// they are stored.
#ifndef OPWIRE_KERNELS_FUSED_ROW_PROGRAM_H_
#define OPWIRE_KERNELS_FUSED_ROW_PROGRAM_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

// In the order of ops::reduce::ReduceLoops.
enum class ReduceKind : uint8_t { kSum, kMean, kProd, kMax, kMin, kAny, kAll };
// Of a row of the catalogue; none: it is no reduction of this kind.
std::optional<ReduceKind> ReduceKindOf(std::string_view op);

class RowProgram {
 public:
  // How a tensor lies beside the shape that the rows are of, [..., n].
  enum Place : uint8_t {
    kElements,  // broadcasts to it
    kRow,       // [..., 1], broadcasts to that
    kShort,     // [...], without the last axis; an input broadcasts to that
    kColumn  // what a reduction of axes in front of the last leaves (ColumnProgram): nothing that a
             // program of rows has
  };
  struct Reduction {
    ReduceKind kind;
    int value;   // what is reduced
    int result;  // what comes of it: an input's instruction
  };

  // One more input or argument; its value (ScalarProgram).
  int AddInput(DType type, Place place);
  int AddArgument(DType type) { return scalar_.AddArgument(type); }
  StatusOr<int> Append(const OpDef& row, std::span<const int> operands, std::span<const int> attrs,
                       DType result, bool saturate = false);
  // One instruction as it is, which is no input.
  int Append(const Instruction& instruction) { return scalar_.Append(instruction); }
  // The reduction of a value over the elements of its row; of the value's type.
  int Reduce(ReduceKind kind, int value);
  // REQUIRES: the value is one of the row, unless the place is kElements.
  void AddOutput(int value, Place place);
  // The operand (or, from the number of operands on, the result) whose shape is that which the rows
  // are of.
  void SetShapeOf(int tensor) { shape_of_ = tensor; }

  // Bytes that are equal for equal programs only.
  std::string Identity() const;

  // The operands' types and places, in order, and the results' places. The scalar program's inputs
  // are the operands, and between them what reductions give.
  std::vector<DType> OperandTypes() const;
  const std::vector<int>& operands() const {
    return operands_;
  }  // by operand: the scalar program's input
  const std::vector<Place>& operand_places() const { return operand_places_; }
  const std::vector<Place>& result_places() const { return result_places_; }
  const std::vector<Reduction>& reductions() const { return reductions_; }
  const ScalarProgram& scalar() const { return scalar_; }
  int shape_of() const { return shape_of_; }
  bool HasExtremes() const;

  // By instruction of the scalar program.
  struct Level {
    int depth = 0;         // reductions that it waits for, one after the other
    bool of_row = true;    // one for all elements of the row
    bool constant = true;  // a number, or made of numbers
    int reduction = -1;    // what it gives
    int operand = -1;      // what it is
  };
  std::vector<Level> Levels() const;

 private:
  ScalarProgram scalar_;
  std::vector<int> operands_;
  std::vector<Place> operand_places_, result_places_;
  std::vector<Reduction> reductions_;
  int shape_of_ = 0;
};

// Why rows of this shape have no largest or smallest elements, in static memory; null: they have,
// or there are no rows.
const char* WhyNoExtremes(const opw_tensor& shape);

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_ROW_PROGRAM_H_
