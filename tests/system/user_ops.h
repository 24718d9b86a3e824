// Folders of ops, executors that offer them, and their reports.
#ifndef OPWIRE_TESTS_SYSTEM_USER_OPS_H_
#define OPWIRE_TESTS_SYSTEM_USER_OPS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/system/processes.h"

namespace opwire::client {

class UserOpsTest : public SystemTest {
 protected:
  using json = nlohmann::json;

  UserOpsTest();

  // Starts to count compilations (Compilations), each after `before` in sh.
  void CountCompilations(const std::string& before = "");
  int Compilations() const;

  // Writes an op user.NAME whose reference multiplies by `factor`. Its own code does so too, unless
  // `body`, C that may use x, y and n, does something else. Returns the folder's path.
  std::string WriteOp(const std::string& name, int factor, const std::string& body = "");
  void WriteFile(const std::string& path, const std::string& text) const;
  std::string ops() const { return directory_ + "/ops"; }
  std::string cache() const { return directory_ + "/cache"; }

  // Starts an executor with --ops and --cache of this test.
  pid_t StartWithOps(const std::string& name = "e1", std::vector<std::string> flags = {},
                     const std::string& device = "cpu");
  // Opens a session that begins now.
  Session Open(const std::string& executor = "");

  struct Result {
    Status status;
    std::vector<float> y;
    std::string ran;  // "user.twice@own"
  };
  static Result Call(const Program& program, const std::vector<float>& x);
  // Calls user.NAME on x, in this session.
  static Result Call(Session& session, const std::string& name, const std::vector<float>& x,
                     const std::string& pin = "");
  static std::string Text(const std::string& name, const std::string& pin = "");

  // Returns the result of the op in a new session; "" if there is no such op.
  Result CallNow(const std::string& name, const std::vector<float>& x = {1, 2, 3}) {
    Session session = Open();
    return Call(session, name, x);
  }
  // Waits until new sessions run that variant and its result for 1 is `one`.
  bool Becomes(const std::string& name, float one, const std::string& variant = "own");

  json Info(const std::string& topic, const std::string& argument = "");
  // Returns the report of the variant: {"state": ..., "reason": ...}; null if it has none.
  json InReport(const std::string& name, const std::string& variant = "own");
  // Returns the problem of the op's folder.
  std::string Problem(const std::string& folder);
};

}  // namespace opwire::client

#endif  // OPWIRE_TESTS_SYSTEM_USER_OPS_H_
