// FlatBuffers' verifier checks that a vector's length lies aligned, not that 8-byte elements do: it
// takes bytes in which reading one is undefined. The generated headers include this, so that it
// refuses them. Every 8-byte element type of a schema is listed here.
#ifndef OPWIRE_IR_SCHEMA_ALIGNMENT_H_
#define OPWIRE_IR_SCHEMA_ALIGNMENT_H_

#include <flatbuffers/flatbuffers.h>

namespace opwire::fb {
struct Binding;
struct DimNode;
struct Limit;
struct ResultInfo;
struct ResultSlot;
struct TensorId;
struct TimelinePoint;
}  // namespace opwire::fb

namespace flatbuffers {
// What VerifyVector asks for a vector of such elements, or of such structs.
template <>
bool Verifier::VerifyVector(const Vector<int64_t>* vec) const;
template <>
bool Verifier::VerifyVector(const Vector<uint64_t>* vec) const;
template <>
bool Verifier::VerifyVector(const Vector<double>* vec) const;
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::Binding>* vec) const;
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::DimNode>* vec) const;
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::Limit>* vec) const;
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::ResultInfo>* vec) const;
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::ResultSlot>* vec) const;
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::TensorId>* vec) const;
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::TimelinePoint>* vec) const;
}  // namespace flatbuffers

#endif  // OPWIRE_IR_SCHEMA_ALIGNMENT_H_
