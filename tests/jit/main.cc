// The tests; with --jit-worker the process that compiles for GPUs, with --get and --hold another
// process at the cache (support.h).
#include <gtest/gtest.h>
#include <sodium.h>

#include <string_view>

#include "kernels/jit/worker.h"
#include "tests/jit/support.h"

int main(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--jit-worker") return opwire::jit::WorkerMain(argc, argv);
  if (sodium_init() < 0) return 1;
  if (first == "--get" || first == "--hold") return opwire::jit::HelperMain(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
