// What an op's results must be, computed from its definition in long double and sharing no code
// with the kernels, with the error that the model below allows each element.
//
// Error model. An elementwise result may be off by the ulp bound of its primitives (ir/ops/expr.h)
// in the computing type, and by half an ulp of a narrower result type; where a device has cheaper
// bodies for such types, by a further 1/128. A sum of n terms may be off by (8 + n/32) eps of the
// sum of magnitudes: eight steps for the tree and the rest in 32 or more partial sums; a matrix
// product of depth k by (k + 2) eps, as its order is the library's; a linear layer's bias by eps of
// its terms, and its activation by 8 eps of what it is of, gelu_tanh of bf16 by 2^-12 of it, as a
// library's tanh may be off by 2^-11; x that is normalised first by (8 + depth/32) eps and a
// rounding of each; a convolution whose element has k products, of them a bias, as a matrix
// product, of 16 bits by half an ulp of the sum of magnitudes, as parts may be rounded, and, like a
// linear layer's, by half an ulp of the sum before bias and activation. A score of attention is off
// as a product of its depth that is scaled and masked, and each weight, exp(score - maximum),
// relatively by that, by 2 |score - maximum| + 16 eps for the exponential and the maxima that came
// before the last, and by eps / 4 for each key, as sums are scaled anew for blocks of 16 keys or
// more; both sums over n keys by n + 4 eps more. Of f16 and bf16 each weight, by half an ulp of 1
// of itself for the maximum that it is rounded with is not the last, and each factor of its
// gradient's second products, may be rounded to the type, and so may what each head gives to a key
// that several share. An optimiser's step is off by eps of each of its terms, propagated to first
// order through the root and the quotient; Lion's, where the sign of its direction is open, by
// twice the learning rate; a norm as the root of its sum, of which squares below 2^-126 may be
// lost.
// A loss of logits that are a product is off by what they are and by what it would be of theirs; in
// the gradients each d may be rounded to the type, sums over rows are by (2 rows + 2) eps, as those
// of chunks are added. A normalised element of a row of n may be off by (8 + n/32) eps of (1 + the
// row's largest x over its deviation), and what gradients are made of it by that and by the sums'
// bounds; sums over rows, which are of blocks of them, by (16 + rows/8) eps of the sum of
// magnitudes. An angle of rotary embedding may be off by 2 eps of itself, of f64 by 4, for
// position, frequency and product, and its sine and cosine by that (by 2 at the most) and 4 eps.
// eps is of the computing type. A product with weights in blocks, but for f64, is off by what x may
// be rounded by: of each 32 by half of their largest magnitude over 127 times the sum of the
// weights' magnitudes, and by 2^-119 of these where it is too small to divide by; and as a sum of
// products of scale and value, and of offsets, each by itself.
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
    Tensor tensor;            // dtype and shape as the row's shape rule says
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
  const OpRow* row;
  std::vector<Tensor> operands;  // lists laid flat; an absent one has no dtype
  std::vector<uint32_t> starts;
  std::vector<AttrValue> attrs;  // the row's, dims as constants
  DimTable* dims;
  std::string blob;  // of `constant`
  Real cheaper = 0;  // what the device's bodies may be off further, in ulp of a type narrower than
                     // it computes in

  const Tensor& In(int i) const { return operands[starts[i]]; }
  int64_t Int(int i) const { return std::get<int64_t>(attrs[i]); }
  bool Bool(int i) const { return std::get<bool>(attrs[i]); }
  double Float(int i) const { return std::get<double>(attrs[i]); }
  const Ints& IntList(int i) const { return std::get<Ints>(attrs[i]); }
  const std::string& Text(int i) const { return std::get<std::string>(attrs[i]); }
};

// `results` come with dtype and shape set. REQUIRES: the row is one of the catalogue's.
Expected Compute(const OracleCall& call, std::vector<Tensor> results);

// The parts of it, by family; false: not this family's.
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
Real Eps(DType computing);  // the rounding unit's double: the spacing at 1
// Row-major position of an index, and the next index; false after the last.
int64_t Flat(const Extents& shape, const Extents& index);
bool NextIndex(const Extents& shape, Extents* index);
// The position in `operand` that broadcasts to `index`.
int64_t BroadcastFlat(const Extents& operand, const Extents& index);
// A number as cast makes it an element of `to`: floats round, float to int saturates with NaN to 0,
// ints wrap.
Real CastValue(DType from, DType to, Real v, bool saturate);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_ORACLE_H_
