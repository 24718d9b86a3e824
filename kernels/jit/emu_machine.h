// What the emulator and the units that it runs share, for both compilers: fundamental types only.
#ifndef OPWIRE_EMU_MACHINE_H_
#define OPWIRE_EMU_MACHINE_H_

namespace opw_emu {

struct Dim3 {
  unsigned x, y, z;
};

// What lanes of a wave meet for.
enum Meeting : int { kShuffle, kBallot, kWaveBarrier };

// What the thread that runs now sees of the emulator. Each unit has one; one block of a process
// runs at a time.
struct Machine {
  Dim3 thread, block, block_dim, grid_dim;
  unsigned char* dynamic_shared;
  unsigned lane;
  // Waits for all threads of the block; how many of them came with a predicate that is not 0.
  int (*barrier)(int predicate);
  // Waits for the lanes of `mask`. A shuffle gives lane `source`'s value, a ballot the lanes whose
  // value is not 0.
  unsigned long long (*meet)(int meeting, unsigned long long mask, unsigned long long value,
                             int source);
  // Ends the launch with an error; does not return.
  void (*fault)(const char* what, const char* file, unsigned line, long long value);
};

// A kernel as a unit exports it, under `opw_emu_kernel_NAME`.
struct Kernel {
  void (*call)(void** params);  // in one thread
  int threads;                  // a block, at the most
  int count;                    // of its parameters
  const unsigned* bytes;        // of each
};

// A unit as it exports itself, under `opw_emu_unit`.
struct Unit {
  const char* name;  // for messages
  Machine* machine;
  unsigned char *shared, *shared_end;  // the variables of its blocks
  int wave;                            // lanes
};

}  // namespace opw_emu

#endif  // OPWIRE_EMU_MACHINE_H_
