// Clients and sessions with the locking that Python needs: one thread at a time uses a session, and
// does not hold the interpreter while it waits.
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
using namespace client;

class OpCache;
class PyProgram;
class Use;

struct PySession : std::enable_shared_from_this<PySession> {
  PySession(Session s, std::string place);
  ~PySession();

  Session session;
  const std::string place;  // "here/cpu"
  std::recursive_timed_mutex
      mutex;  // for all except dropped tensors; recursive, because making an object may drop others
  std::unique_ptr<OpCache> ops;
  Sources sources;                         // source lines of queued runs
  std::vector<std::unique_ptr<Use>> held;  // by Python's `with`
  std::list<PyProgram*> loaded;  // compiled functions that have a slot, the last used one first

  // Frees a tensor, now or when the session is next used. The caller may be in a call of this
  // session, or another thread.
  void Drop(Tensor t);

 private:
  friend class Use;
  std::mutex drop_mutex_;
  std::vector<Tensor> dropped_;
  std::atomic<bool> has_dropped_ = false;  // checked by Use at every op, instead of taking the lock
};

// Whether this process was forked from the one that imported the module. It must not use that
// process's connections.
bool IsForked();

// A wait of a thread in this scope, which another thread may end. The wait ends with
// InterruptedError, and the sent requests continue. A Python object.
class Wait {
 public:
  void Enter();
  void Exit();
  void Leave() { left_ = true; }  // any thread
  // Whether this thread's wait was left.
  static bool Left();

 private:
  std::atomic<bool> left_ = false;
  const Wait* outer_ = nullptr;
};

// Whether a signal's handler raised, or this thread's wait was left. Python's exception is set
// then, and the wait ends.
bool Interrupted();

// Holds a session for a scope. Other threads wait for the session, and run while the interpreter is
// released (Released inside).
class Use {
 public:
  // RuntimeError in a process that was forked. Also raises the exception of a signal's handler
  // while another thread has the session.
  explicit Use(PySession& s);
  // For destructors: raises nothing. REQUIRES: the process was not forked.
  static Use ToEnd(PySession& s) { return Use(s, std::chrono::hours(24 * 365)); }
  ~Use();
  Use(const Use&) = delete;

  Session& operator*() const { return s_.session; }
  Session* operator->() const { return &s_.session; }
  // Raises. If a signal's handler raised during a wait, all sent requests are cancelled. If the
  // reason of this status is a failed queued run, the message has the line of that run.
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

// Runs `f` with the session and without the interpreter.
template <typename F>
auto Waiting(F&& f) {
  const Released released;
  return f();
}

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_SESSION_H_
