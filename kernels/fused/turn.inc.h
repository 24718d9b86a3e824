// A plane's rows as another's columns, by squares that vectors hold. Part of this program and of
// every compiled unit, so it uses no library.
#ifndef OPWIRE_KERNELS_FUSED_TURN_INC_H_
#define OPWIRE_KERNELS_FUSED_TURN_INC_H_

#include <stdint.h>

namespace opwire::fused {
namespace {

// 16 bytes of elements, and the lower or upper halves of two of them, element by element.
template <int kBytes>
struct Quad;
template <>
struct Quad<1> {
  typedef uint8_t Type __attribute__((vector_size(16)));
  static Type Low(Type a, Type b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  }
  static Type High(Type a, Type b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
  }
};
template <>
struct Quad<2> {
  typedef uint16_t Type __attribute__((vector_size(16)));
  static Type Low(Type a, Type b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  static Type High(Type a, Type b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};
template <>
struct Quad<4> {
  typedef uint32_t Type __attribute__((vector_size(16)));
  static Type Low(Type a, Type b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
  static Type High(Type a, Type b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
};
template <>
struct Quad<8> {
  typedef uint64_t Type __attribute__((vector_size(16)));
  static Type Low(Type a, Type b) { return __builtin_shufflevector(a, b, 0, 2); }
  static Type High(Type a, Type b) { return __builtin_shufflevector(a, b, 1, 3); }
};

// Rows of 16 bytes become columns: each round sets every other row beside the one half of all
// further on.
template <int kBytes>
inline void TurnSquare(char* to, int64_t to_row, const char* from, int64_t from_row) {
  constexpr int kSide = 16 / kBytes;
  using Q = Quad<kBytes>;
  typename Q::Type rows[kSide], next[kSide];
  for (int i = 0; i < kSide; ++i) __builtin_memcpy(&rows[i], from + i * from_row, 16);
  for (int round = 1; round < kSide; round *= 2) {
    for (int i = 0; i < kSide / 2; ++i) {
      next[2 * i] = Q::Low(rows[i], rows[i + kSide / 2]);
      next[2 * i + 1] = Q::High(rows[i], rows[i + kSide / 2]);
    }
    for (int i = 0; i < kSide; ++i) rows[i] = next[i];
  }
  for (int i = 0; i < kSide; ++i) __builtin_memcpy(to + i * to_row, &rows[i], 16);
}

// The squares along a line of memory one after the other, so that each line is there once: of
// `from`, or of `to` where that is no tile. What lies some rows further on in `from` is asked for
// before, as no processor expects it.
template <int kBytes, bool kFromMemory>
inline void TurnOf(char* to, int64_t to_row, const char* from, int64_t from_row, int64_t rows,
                   int64_t columns) {
  constexpr int64_t kSide = 16 / kBytes, kAhead = 16, kLine = 64, kNear = 256;
  const auto one = [&](int64_t i, int64_t j) {
    __builtin_memcpy(to + i * to_row + j * kBytes, from + j * from_row + i * kBytes, kBytes);
  };
  const int64_t whole_rows = rows - rows % kSide, whole_columns = columns - columns % kSide;
  const auto square = [&](int64_t i, int64_t j) {
    TurnSquare<kBytes>(to + i * to_row + j * kBytes, to_row, from + j * from_row + i * kBytes,
                       from_row);
  };
  if constexpr (kFromMemory) {
    for (int64_t j = 0; j < whole_columns; j += kSide) {
      for (int64_t next = j + kAhead;
           from_row > kNear && next < columns && next < j + kAhead + kSide; ++next) {
        for (int64_t at = 0; at < rows * kBytes; at += kLine)
          __builtin_prefetch(from + next * from_row + at);
      }
      for (int64_t i = 0; i < whole_rows; i += kSide) square(i, j);
    }
  } else {
    for (int64_t i = 0; i < whole_rows; i += kSide) {
      for (int64_t j = 0; j < whole_columns; j += kSide) square(i, j);
    }
  }
  for (int64_t i = whole_rows; i < rows; ++i) {
    for (int64_t j = 0; j < whole_columns; ++j) one(i, j);
  }
  for (int64_t j = whole_columns; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) one(i, j);
  }
}

// to[i][j] = from[j][i] for `rows` i and `columns` j; elements are neighbours along j in `to` and
// along i in `from`, rows of each so many bytes apart. One of the two is a tile that a cache holds:
// `to` where kFromMemory.
template <bool kFromMemory>
inline void Turn(char* to, int64_t to_row, const char* from, int64_t from_row, int64_t rows,
                 int64_t columns, int64_t bytes) {
  if (bytes == 8) return TurnOf<8, kFromMemory>(to, to_row, from, from_row, rows, columns);
  if (bytes == 4) return TurnOf<4, kFromMemory>(to, to_row, from, from_row, rows, columns);
  if (bytes == 2) return TurnOf<2, kFromMemory>(to, to_row, from, from_row, rows, columns);
  TurnOf<1, kFromMemory>(to, to_row, from, from_row, rows, columns);
}

}  // namespace
}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_TURN_INC_H_
