// Unsigned integers in the order of a type's elements, and elements to sort with their original
// places. Also for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_SORT_KEYS_H_
#define OPWIRE_KERNELS_OPS_SORT_KEYS_H_

#include <stdint.h>

#include "kernels/ops/isa_namespace.h"

namespace opwire::ops::sort::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;

// An element type by its bits: Bits is the integer type, kInfinity has a float's bits of infinity,
// and 0 for integers.
template <typename B, bool kSignedType, B kInfinityBits = 0>
struct KeyType {
  using Bits = B;
  static constexpr B kTop = static_cast<B>(B{1} << (sizeof(B) * 8 - 1));
  static constexpr B kInfinity = kInfinityBits;
  static constexpr bool kSigned = kSignedType;

  // Equal for equal elements: for zeros of both signs, and for NaN, whose key is the largest of
  // all.
  static B Key(B bits) {
    if constexpr (kInfinity != 0) {
      const B magnitude = static_cast<B>(bits & static_cast<B>(~kTop));
      const B turned = static_cast<B>(
          bits ^ ((bits & kTop) != 0 && magnitude != 0 ? static_cast<B>(~B{0}) : kTop));
      return magnitude > kInfinity ? static_cast<B>(~B{0}) : magnitude == 0 ? kTop : turned;
    } else {
      return kSigned ? static_cast<B>(bits ^ kTop) : bits;
    }
  }
};
struct BoolKey : KeyType<uint8_t, false> {
  static uint8_t Key(uint8_t bits) { return bits != 0; }
};

// Calls f(KeyType{}) for an element type of the ABI.
template <typename F>
decltype(auto) VisitKey(int dtype, const F& f) {
  switch (dtype) {
    case 1:
      return f(KeyType<uint64_t, true, 0x7ff0000000000000u>());
    case 2:
      return f(KeyType<uint32_t, true, 0x7f800000u>());
    case 3:
      return f(KeyType<uint16_t, true, 0x7c00>());
    case 4:
      return f(KeyType<uint16_t, true, 0x7f80>());
    case 7:
      return f(KeyType<uint64_t, true>());
    case 8:
      return f(KeyType<uint32_t, true>());
    case 9:
      return f(KeyType<uint16_t, true>());
    case 10:
      return f(KeyType<uint8_t, true>());
    case 11:
      return f(KeyType<uint64_t, false>());
    case 12:
      return f(KeyType<uint32_t, false>());
    case 13:
      return f(KeyType<uint16_t, false>());
    case 14:
      return f(KeyType<uint8_t, false>());
    default:
      return f(BoolKey());
  }
}

// A key over its original place, so that all items are different; 8 bytes if both fit.
struct NarrowItem {
  uint64_t bits;
  static NarrowItem Of(uint64_t key, int64_t place) {
    return {key << 32 | static_cast<uint64_t>(place)};
  }
  uint64_t key() const { return bits >> 32; }
  int64_t place() const { return static_cast<int64_t>(bits & 0xffffffffu); }
  bool operator<(const NarrowItem& other) const { return bits < other.bits; }
};
struct WideItem {
  uint64_t bits;
  int64_t at;
  static WideItem Of(uint64_t key, int64_t place) { return {key, place}; }
  uint64_t key() const { return bits; }
  int64_t place() const { return at; }
  bool operator<(const WideItem& other) const {
    return bits < other.bits || (bits == other.bits && at < other.at);
  }
};
// Calls f with the item for an element type's bits, if slices have `extent` elements.
template <typename Bits, typename F>
decltype(auto) VisitItem(int64_t extent, const F& f) {
  if constexpr (sizeof(Bits) <= 4) {
    if (extent <= int64_t{1} << 32) return f(NarrowItem());
  }
  return f(WideItem());
}

}  // namespace opwire::ops::sort::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_SORT_KEYS_H_
