// A runtime directory of a test's own, the processes that the test starts there, and clients for
// them. All of them end with the test.
#ifndef OPWIRE_TESTS_SYSTEM_PROCESSES_H_
#define OPWIRE_TESTS_SYSTEM_PROCESSES_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "frontend/cpp/client.h"
#include "frontend/cpp/placement.h"
#include "ir/wire/clock.h"
#include "ir/wire/message.h"
#include "ir/wire/zmq_channel.h"
#include "tests/assert_ok.h"

namespace opwire::client {

// Sizes of the tests; --messages=N and --rounds=N of the program.
struct SystemOptions {
  int messages = 3000;
  int rounds = 3;
};
extern SystemOptions system_options;

class SystemTest : public ::testing::Test {
 protected:
  SystemTest();
  ~SystemTest() override;

  // Returns the process's id. The output goes to a file that a failure prints.
  pid_t Start(std::vector<std::string> argv);
  // Starts a registry that asks for a beat each 100 ms.
  pid_t StartRegistry();
  // Returns once it is registered.
  pid_t StartExecutor(const std::string& name, std::vector<std::string> flags = {},
                      const std::string& device = "cpu");
  // Starts a client in a process of its own (see main.cc). Returns once it reports that it is
  // ready.
  pid_t StartClient(const std::string& what);
  void Signal(pid_t pid, int signal);
  // Returns its exit code, or 128 + the signal that ended it; -1 if it has not ended after half a
  // minute.
  int Wait(pid_t pid);
  int Kill(pid_t pid) {
    Signal(pid, 9);
    return Wait(pid);
  }
  bool Alive(pid_t pid);
  // Returns the seconds of processor time that it has used.
  static double ProcessorSeconds(pid_t pid);

  Client Connect(const std::string& name = "test");
  // Returns incarnations by executor, as the registry reports them; empty if it does not answer.
  std::map<std::string, uint64_t> Registered();
  std::string ControlEndpoint(const std::string& name) {
    return "ipc://" + directory_ + "/" + name + ".ctl";
  }

  static bool Eventually(const std::function<bool()>& condition, Nanos within = 20 * kSecond);

  // A session at the level of the wire, without the checks of the client library; "hostile" if the
  // Hello names none.
  struct Spoken {
    std::vector<uint8_t> token;
    uint32_t attachment = 0;
    std::string run_endpoint, ring_path;
  };
  Spoken SayHello(const std::string& endpoint, fb::HelloT hello = {});
  static std::string AttachBytes(const Spoken& s);

  // Returns the file with the output of the process.
  std::string LogOf(pid_t pid) const { return directory_ + "/" + std::to_string(pid) + ".log"; }

  std::string directory_;
  ZmqContext context_;

 private:
  std::map<pid_t, int> children_;  // by id: the status once ended, else -1
};

inline constexpr const char* kTwice =
    "program @twice(%x: f32[?n]) -> (y: f32[?n]) { %0 = add(%x, %x) return %0 }";
// Takes some milliseconds on any machine.
inline constexpr const char* kHeavy = R"(program @heavy(%x: f32[256, 256]) -> (y: f32[256, 256]) {
  %0 = matmul(%x, %x)
  %1 = matmul(%0, %x)
  %2 = matmul(%1, %x)
  return %2
})";

inline Array Values(std::vector<float> v) {
  return Array::Of<float>(DType::kF32, {static_cast<int64_t>(v.size())}, v);
}

using Floats = std::vector<float>;
inline Floats ToFloats(const Array& a) {
  return {a.values<float>().begin(), a.values<float>().end()};
}

}  // namespace opwire::client

#endif  // OPWIRE_TESTS_SYSTEM_PROCESSES_H_
