// A runtime directory of a test's own, the processes that it starts there, and clients for them.
// All ends with the test.
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

namespace opwire {

// How much of what is counted; --messages=N and --rounds=N of the program.
struct SystemOptions {
  int messages = 3000;
  int rounds = 3;
};
extern SystemOptions system_options;

class SystemTest : public ::testing::Test {
 protected:
  SystemTest();
  ~SystemTest() override;

  // The process's id; what it says goes to a file that a failure prints.
  pid_t Start(std::vector<std::string> argv);
  // A registry that asks for a beat each 100 ms.
  pid_t StartRegistry();
  // Returns once it is registered.
  pid_t StartExecutor(const std::string& name, std::vector<std::string> flags = {},
                      const std::string& device = "cpu");
  // A client in a process of its own (see main.cc); returns once it says that it is ready.
  pid_t StartClient(const std::string& what);
  void Signal(pid_t pid, int signal);
  // Its exit code, or 128 + the signal that ended it; -1 when it has not ended after half a minute.
  int Wait(pid_t pid);
  int Kill(pid_t pid) {
    Signal(pid, 9);
    return Wait(pid);
  }
  bool Alive(pid_t pid);
  // Seconds of processor time that it has used.
  static double ProcessorSeconds(pid_t pid);

  Client Connect(const std::string& name = "test");
  // Incarnations by executor, as the registry says; empty when it does not answer.
  std::map<std::string, uint64_t> Registered();
  std::string ControlEndpoint(const std::string& name) {
    return "ipc://" + directory_ + "/" + name + ".ctl";
  }

  static bool Eventually(const std::function<bool()>& condition, Nanos within = 20 * kSecond);

  // A session as the wire has it, without the care of the client library; "hostile" where the Hello
  // names none.
  struct Spoken {
    std::vector<uint8_t> token;
    uint32_t attachment = 0;
    std::string run_endpoint, ring_path;
  };
  Spoken SayHello(const std::string& endpoint, fb::HelloT hello = {});
  static std::string AttachBytes(const Spoken& s);

  // What the process said.
  std::string LogOf(pid_t pid) const { return directory_ + "/" + std::to_string(pid) + ".log"; }

  std::string directory_;
  ZmqContext context_;

 private:
  std::map<pid_t, int> children_;  // by id: the status once ended, else -1
};

inline constexpr const char* kTwice =
    "program @twice(%x: f32[?n]) -> (y: f32[?n]) { %0 = add(%x, %x) return %0 }";
// Some milliseconds on any machine.
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

}  // namespace opwire

#endif  // OPWIRE_TESTS_SYSTEM_PROCESSES_H_
