// Shared by the emulator and the units that it runs, for both compilers: fundamental types only.
#ifndef OPWIRE_EMU_MACHINE_H_
#define OPWIRE_EMU_MACHINE_H_

namespace opw_emu {

struct Dim3 {
  unsigned x, y, z;
};

// Reasons for which lanes of a wave meet.
enum Meeting : int { kShuffle, kBallot, kWaveBarrier };

// The emulator's state as the running thread sees it. Each unit has one; one block of a process
// runs at a time.
struct Machine {
  Dim3 thread, block, block_dim, grid_dim;
  unsigned char* dynamic_shared;
  unsigned lane;
  // Waits for all threads of the block; returns the number of those whose predicate is not 0.
  int (*barrier)(int predicate);
  // Waits for the lanes of `mask`. A shuffle returns lane `source`'s value; a ballot returns the
  // lanes whose value is not 0.
  unsigned long long (*meet)(int meeting, unsigned long long mask, unsigned long long value,
                             int source);
  // Ends the launch with an error; does not return.
  void (*fault)(const char* what, const char* file, unsigned line, long long value);
};

// A kernel as a unit exports it, under `opw_emu_kernel_NAME`.
struct Kernel {
  void (*call)(void** params);  // in one thread
  int threads;                  // most threads of a block
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
