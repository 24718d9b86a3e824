// Parameters of sorting on GPUs, for both compilers.
#ifndef OPWIRE_KERNELS_OPS_SORT_GPU_PARAMS_H_
#define OPWIRE_KERNELS_OPS_SORT_GPU_PARAMS_H_

namespace opw::sort {

// Slices of x as [slices / inner, extent, inner], or pairs [slices, extent] from an earlier launch:
// a key and its element's original place. The first `limit` pairs in order go to other pairs
// [slices, limit], or to the results as [slices / inner, limit, inner].
struct SortParams {
  const void* x;     // always there; [slices / inner, x_extent, inner]
  const void* keys;  // pairs, if they are read
  const void* places;
  void* to_keys;  // pairs, if they are written
  void* to_places;
  void* values;  // results; null: not requested
  void* indices;
  void* counts;       // [slices, digits, tiles]
  const void* picks;  // [slices]: the results of a selection
  long long slices, x_extent, extent, inner, limit;
  long long tiles;          // of a slice
  unsigned long long flip;  // xored to keys: all ones for the largest first
  int shift;                // of the digit
  int width;                // places of a slice in a block's memory: a power of two
  int items;                // of a block's memory
};

// Finds the `wanted`-th smallest key of each slice, a digit at a time, starting with the highest.
struct PickParams {
  void*
      bins;  // [slices, 256]: how many keys have each digit, of those with the digits found so far
  void* picks;  // [slices]
  long long slices, wanted;
  int shift;
};

// The digits found so far, in place, and which of the keys that have them is looked for, from 1.
struct Pick {
  unsigned long long key;
  unsigned long long rank;
};

}  // namespace opw::sort

#endif  // OPWIRE_KERNELS_OPS_SORT_GPU_PARAMS_H_
