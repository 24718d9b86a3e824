// The expected results of an op, and the error that the model below allows for each element. The
// oracle computes them in long double from the op's definition. It shares no code with the kernels.
//
// Error model: the allowed error of a result depends on its kind. eps is that of the computing
// type.
//
// - Elementwise: the ulp bound of the op's primitives (ir/ops/expr.h) in the computing type, and
//   half an ulp of a narrower result type. If a device has cheaper bodies for such types, a
//   further 1/128 ulp.
// - A sum of n terms: (8 + n/32) eps of the sum of magnitudes. Eight steps are for the tree, the
//   rest for 32 or more partial sums.
// - A matmul of depth k: (k + 2) eps of the sum of magnitudes, because its order is the
//   library's.
// - A linear layer: eps of its terms for the bias, and 8 eps of the activation's argument for the
//   activation. A library's tanh may be off by 2^-11, so for gelu_tanh of bf16 it is 2^-12 of the
//   argument. An x that is normalised first is off by (8 + depth/32) eps and by a rounding of each
//   element.
// - A convolution whose element has k products, including a bias: as a matmul. With 16-bit types
//   also half an ulp of the sum of magnitudes, because parts may be rounded. In addition, as for
//   a linear layer, half an ulp of the sum before bias and activation.
// - A score of attention: as a matmul of its depth that is scaled and masked. The relative error
//   of a weight, exp(score - maximum), is the error of the score. The exponential, and the maxima
//   that came before the last, add (2 |score - maximum| + 16) eps. Each key adds eps / 4, because
//   sums are scaled again for blocks of 16 keys or more. Both sums over n keys add (n + 4) eps.
// - Attention of f16 and bf16: each weight may be rounded to the type. That is half an ulp of 1 of
//   itself, because the maximum that it is rounded with is not the last. Each factor of its
//   gradient's second products may also be rounded to the type. So may the part that each head
//   adds to a key that several heads share.
// - An optimiser's step: eps of each of its terms, propagated to first order through the root and
//   the quotient. For Lion, if the sign of its direction is open: twice the learning rate. A
//   norm: as the root of its sum. Squares below 2^-126 may be lost from this sum.
// - A loss of logits that are a matmul: the error of the logits, and the error of the loss of
//   these logits. In the gradients each d may be rounded to the type. Sums over rows are off by
//   (2 rows + 2) eps, because the sums of chunks are added.
// - A normalised element of a row of n: (8 + n/32) eps of (1 + the row's largest x over its
//   deviation). Its gradients: that error and the sums' bounds. Sums over rows consist of sums
//   over blocks of rows; they are off by (16 + rows/8) eps of the sum of magnitudes.
// - An angle of rotary embedding: 2 eps of itself, for f64 4 eps, for position, frequency and
//   product. Its sine and cosine are off by the error of the angle (at most by 2) and by 4 eps.
// - A matmul with weights in blocks, except for f64: the rounding of x. For each 32 elements of x
//   that is half of their largest magnitude over 127, times the sum of the weights' magnitudes;
//   and 2^-119 of that sum if the magnitude is too small to divide by. In addition, as sums of
//   products of scale and value, and of offsets, each sum separately.
#ifndef OPWIRE_TESTS_CONFORMANCE_ORACLE_H_
#define OPWIRE_TESTS_CONFORMANCE_ORACLE_H_

#include <optional>
#include <string>
#include <vector>

#include "ir/ops/catalogue.h"
#include "tests/conformance/tensor.h"

namespace opwire::conformance {

struct Expected {
  struct Result {
    Tensor tensor;            // dtype and shape as the op's shape rule says
    std::vector<Real> error;  // absolute, element by element; empty: exact
  };
  std::vector<Result> results;
  bool exact_zeros = false;  // the sign of a zero counts
  bool divided = false;      // an integer was divided by zero
  int bad_operand = -1;      // the first value out of its domain
  int64_t bad_position = 0;

  Tensor& result() { return results[0].tensor; }  // of a row that has one
  std::vector<Real>& error() { return results[0].error; }
};

struct OracleCall {
  const OpDef* row;
  std::vector<Tensor> operands;  // lists are flattened; an absent one has no dtype
  std::vector<uint32_t> starts;
  std::vector<AttrValue> attrs;  // the op's, dims as constants
  DimTable* dims;
  std::string blob;  // of `constant`
  Real cheaper = 0;  // the device's bodies may be off by this much more, in ulp of a type narrower
                     // than the computing type

  const Tensor& In(int i) const { return operands[starts[i]]; }
  int64_t Int(int i) const { return std::get<int64_t>(attrs[i]); }
  bool Bool(int i) const { return std::get<bool>(attrs[i]); }
  double Float(int i) const { return std::get<double>(attrs[i]); }
  const Ints& IntList(int i) const { return std::get<Ints>(attrs[i]); }
  const std::string& Text(int i) const { return std::get<std::string>(attrs[i]); }
};

// `results` have dtype and shape set. REQUIRES: the op definition is one of the catalogue's.
Expected Compute(const OracleCall& call, std::vector<Tensor> results);

// Its parts by family. They return false if the op is not of their family.
bool ComputeElementwise(const OracleCall& call, Expected* e);
bool ComputeShape(const OracleCall& call, Expected* e);
bool ComputeReduce(const OracleCall& call, Expected* e);
bool ComputeSort(const OracleCall& call, Expected* e);
bool ComputeNn(const OracleCall& call, Expected* e);
bool ComputeGradients(const OracleCall& call, Expected* e);
bool ComputeConvolution(const OracleCall& call, Expected* e);
bool ComputeAttention(const OracleCall& call, Expected* e);
bool ComputeRotary(const OracleCall& call, Expected* e);
bool ComputeCreate(const OracleCall& call, Expected* e);
bool ComputeOptim(const OracleCall& call, Expected* e);
bool ComputeQuant(const OracleCall& call, Expected* e);
bool ComputeBlocks(const OracleCall& call, Expected* e);
bool ComputeSampling(const OracleCall& call, Expected* e);

// Helpers.
inline int Axis(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }
Real Eps(DType computing);  // twice the rounding unit: the spacing at 1
// Returns the row-major position of an index, and the next index; false after the last.
int64_t Flat(const Extents& shape, const Extents& index);
bool NextIndex(const Extents& shape, Extents* index);
// Returns the position in `operand` that broadcasts to `index`.
int64_t BroadcastFlat(const Extents& operand, const Extents& index);
// Returns a number as cast makes it an element of `to`: floats round, float to int saturates with
// NaN to 0, ints wrap.
Real CastValue(DType from, DType to, Real v, bool saturate);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_ORACLE_H_
