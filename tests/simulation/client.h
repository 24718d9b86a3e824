// A client for the simulated network: Flight, the client's own state machine, with a simple policy
// of reconnecting and retrying. It counts with a tensor that each of its runs increments, so it
// detects a second execution or a lost one.
#ifndef OPWIRE_TESTS_SIMULATION_CLIENT_H_
#define OPWIRE_TESTS_SIMULATION_CLIENT_H_

#include <map>
#include <string>
#include <vector>

#include "frontend/cpp/flight.h"
#include "tests/simulation/network.h"

namespace opwire::sim {
using namespace client;

class ClientNode {
 public:
  // Issues `requests` requests, then is done. `programs` are the bytes of the increment and of the
  // pure program.
  ClientNode(Clock& clock, Network& network, NodeId node, uint64_t seed, int requests,
             std::vector<std::string> programs);

  bool done() const { return issued_ == requests_ && open_.empty(); }
  // Returns violations of the promises; empty if there are none.
  const std::vector<std::string>& complaints() const { return complaints_; }
  int succeeded() const { return succeeded_; }
  int failed() const { return failed_; }
  int sessions() const { return sessions_; }
  std::string Describe() const;

 private:
  enum class Phase { kAsking, kHello, kAttaching, kReady, kWaiting };
  enum class Kind { kProgram, kPut, kIncrement, kDouble };
  struct Open {
    Kind kind;
    float argument = 0;
    bool may_stop = false;  // has a deadline, or was cancelled
  };

  void Ask();  // the registry, for an executor
  void OnExecutors(const ClientChannel::Message& m);
  void Hello();
  void OnHello(const ClientChannel::Message& m);
  void OnRun(const ClientChannel::Message& m);
  void OnLost();
  void LoseSession(const Status& why);
  void WaitThen(Nanos delay, void (ClientNode::*next)());
  void Issue();
  template <typename BodyT>
  void Send(Kind kind, BodyT body, const std::string& bulk = "", float argument = 0,
            bool may_stop = false);
  void Collect();
  void Check(uint64_t ticket, const Open& open, const StatusOr<Flight::Answer>& answer);
  void Complain(std::string what) { complaints_.push_back(std::move(what)); }
  // Runs `f` unless the client has started another step meanwhile.
  template <typename F>
  auto Guarded(F f) {
    return [this, f, step = step_](auto&&... args) {
      if (step == step_) f(std::forward<decltype(args)>(args)...);
    };
  }

  Clock& clock_;
  Network& network_;
  const NodeId node_;
  std::mt19937_64 random_;
  const int requests_;
  const std::vector<std::string> programs_;

  Phase phase_ = Phase::kWaiting;
  uint64_t step_ = 0;  // counts changes of phase: a step that began in an earlier one is void
  PeerId control_ = 0, run_ = 0;
  std::string executor_;
  std::vector<uint8_t> token_;
  uint32_t attachment_ = 0;
  int attempts_ = 0;
  Flight flight_;
  std::map<uint64_t, Open> open_;
  int issued_ = 0;
  float counted_ = 0;  // the last value that an increment of this session returned
  std::vector<std::string> complaints_;
  int succeeded_ = 0, failed_ = 0, sessions_ = 0;
};

}  // namespace opwire::sim

#endif  // OPWIRE_TESTS_SIMULATION_CLIENT_H_
