// Vectors of 8-byte elements: in bounds, and aligned.
#include "ir/schema/alignment.h"

#include "ir/schema/program_generated.h"
#include "ir/schema/wire_generated.h"

namespace flatbuffers {
namespace {

template <typename T>
bool Check(const Verifier& verifier, const Vector<T>* vec) {
  static_assert(alignof(T) == 8);
  return !vec || (verifier.VerifyVectorOrString(reinterpret_cast<const uint8_t*>(vec), sizeof(T)) &&
                  verifier.Check(reinterpret_cast<uintptr_t>(vec->Data()) % alignof(T) == 0 ||
                                 vec->size() == 0));
}

}  // namespace

template <>
bool Verifier::VerifyVector(const Vector<int64_t>* vec) const {
  return flatbuffers::Check(*this, vec);
}
template <>
bool Verifier::VerifyVector(const Vector<uint64_t>* vec) const {
  return flatbuffers::Check(*this, vec);
}
template <>
bool Verifier::VerifyVector(const Vector<double>* vec) const {
  return flatbuffers::Check(*this, vec);
}
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::Binding>* vec) const {
  return flatbuffers::Check(*this, vec);
}
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::DimNode>* vec) const {
  return flatbuffers::Check(*this, vec);
}
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::Limit>* vec) const {
  return flatbuffers::Check(*this, vec);
}
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::ResultInfo>* vec) const {
  return flatbuffers::Check(*this, vec);
}
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::ResultSlot>* vec) const {
  return flatbuffers::Check(*this, vec);
}
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::TensorId>* vec) const {
  return flatbuffers::Check(*this, vec);
}
template <>
bool Verifier::VerifyVector(const Vector<opwire::fb::TimelinePoint>* vec) const {
  return flatbuffers::Check(*this, vec);
}

}  // namespace flatbuffers
