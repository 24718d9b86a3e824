// Scalar programs as C++ for the host's compiler: one shared library of their kernels.
//
//   const ScalarProgram* const programs[] = {&p};
//   // one self-contained translation unit beside <opwire/abi.h>
//   const std::string unit = HostSource(programs);
//
// Equal programs give equal text. It holds nothing of a program but its primitives, element types
// and constants' bits: names are numbers of ours, and sizes, shapes and arguments come with the
// call. It is for processors with AVX2 or AVX-512, by what the compiler is asked for.
#ifndef OPWIRE_KERNELS_FUSED_SOURCE_H_
#define OPWIRE_KERNELS_FUSED_SOURCE_H_

#include <span>
#include <string>

#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

// The unit exports program N as kernel N of a library (kernels/jit/library.h). Their calls are
// those of Interpreter::kernel(), and state that one of them prepared the other runs. REQUIRES:
// each Check().ok(), and at least one.
std::string HostSource(std::span<const ScalarProgram* const> programs);

// The programs' own part of the text, without what every unit has before it.
std::string ProgramSource(const ScalarProgram& program, int index);

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_SOURCE_H_
