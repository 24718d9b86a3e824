// Clients and sessions with what Python needs around them: a session is used by one thread at a
// time, which does not hold the interpreter while it waits.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_SESSION_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_SESSION_H_

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "frontend/cpp/client.h"
#include "frontend/python/module/interpreter.h"
#include "frontend/python/module/source.h"

namespace opwire::python {

class OpCache;
class PyProgram;
class Use;

struct PySession : std::enable_shared_from_this<PySession> {
  PySession(Session s, std::string place);
  ~PySession();

  Session session;
  const std::string place;  // "here/cpu"
  std::recursive_timed_mutex
      mutex;  // of all but what is dropped; recursive, as making an object may drop others
  std::unique_ptr<OpCache> ops;
  Sources sources;                         // of queued runs
  std::vector<std::unique_ptr<Use>> held;  // by Python's `with`
  std::list<PyProgram*> loaded;  // compiled functions that have a slot, the one used last first

  // Frees a tensor, now or when the session is next used: whoever drops an array may be in the
  // middle of that, or another thread.
  void Drop(Tensor t);

 private:
  friend class Use;
  std::mutex drop_mutex_;
  std::vector<Tensor> dropped_;
  std::atomic<bool> has_dropped_ =
      false;  // what Use asks, which comes with every op, instead of taking the lock
};

// Whether this process was forked from the one that imported the module, whose connections it must
// not touch.
bool IsForked();

// What a thread waits for in this scope, which another may leave: the wait ends with
// InterruptedError, and what was sent goes on. An object of Python's.
class Wait {
 public:
  void Enter();
  void Exit();
  void Leave() { left_ = true; }  // any thread
  // Whether this thread's was left.
  static bool Left();

 private:
  std::atomic<bool> left_ = false;
  const Wait* outer_ = nullptr;
};

// Whether a signal's handler raised, or what this thread waits for was left: Python's exception is
// set then, and what is waited for ends.
bool Interrupted();

// Holds a session for a scope. Without the interpreter (Released inside) others wait for the
// session, and run meanwhile.
class Use {
 public:
  // RuntimeError in a process that was forked; what a signal's handler raises while another thread
  // has the session.
  explicit Use(PySession& s);
  // For what ends, which raises nothing. REQUIRES: the process was not forked.
  static Use ToEnd(PySession& s) { return Use(s, std::chrono::hours(24 * 365)); }
  ~Use();
  Use(const Use&) = delete;

  Session& operator*() const { return s_.session; }
  Session* operator->() const { return &s_.session; }
  // Raises. Where a signal's handler did while something was waited for, all that was sent is
  // cancelled. A queued run that failed and is the reason of this status is told with the line that
  // it came from.
  [[noreturn]] void Fail(const Status& status) const;
  template <typename T>
  T Unwrap(StatusOr<T> value) const {
    if (!value.ok()) Fail(value.status());
    return *std::move(value);
  }
  void Check(const Status& status) const {
    if (!status.ok()) Fail(status);
  }

 private:
  Use(PySession& s, std::chrono::milliseconds between_signals);
  PySession& s_;
};

// What runs with the session and without the interpreter.
template <typename F>
auto Waiting(F&& f) {
  const Released released;
  return f();
}

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_SESSION_H_
