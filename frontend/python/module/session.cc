// Locks, and tensors that are dropped while they are held.
#include "frontend/python/module/session.h"

#include <pthread.h>

#include <stdexcept>
#include <utility>

#include "frontend/python/module/errors.h"
#include "frontend/python/module/op_cache.h"

namespace opwire::python {
namespace nb = nanobind;

PySession::PySession(Session s, std::string where)
    : session(std::move(s)), place(std::move(where)), ops(std::make_unique<OpCache>()) {}
PySession::~PySession() {
  if (IsForked())
    (void)new Session(
        std::move(session));  // its end would send messages on the other process's connection
}

void PySession::Drop(Tensor t) {
  if (IsForked()) return;
  if (mutex.try_lock()) {
    t = Tensor();
    mutex.unlock();
    return;
  }
  const std::lock_guard lock(drop_mutex_);
  dropped_.push_back(std::move(t));
  has_dropped_ = true;
}

bool IsForked() {
  static bool forked = false;
  static const int watched = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  (void)watched;
  return forked;
}

namespace {

thread_local const Wait* waits = nullptr;  // the innermost

}  // namespace

void Wait::Enter() { outer_ = std::exchange(waits, this); }
void Wait::Exit() { waits = outer_; }
bool Wait::Left() { return waits != nullptr && waits->left_; }

bool Interrupted() {
  const Acquired held;
  if (PyErr_Occurred()) return true;
  if (Wait::Left()) PyErr_SetString(PyExc_InterruptedError, "nobody waits for this any more");
  return PyErr_Occurred() || PyErr_CheckSignals() != 0;
}

Use::Use(PySession& s) : Use(s, std::chrono::milliseconds(50)) {}

Use::Use(PySession& s, std::chrono::milliseconds between_signals) : s_(s) {
  if (IsForked())
    throw std::runtime_error(
        "this process was forked from one that imported opwire, whose connections it cannot share: "
        "start it by the method \"spawn\"");
  for (bool held = s_.mutex.try_lock(); !held;) {
    {
      const Released released;
      held = s_.mutex.try_lock_for(between_signals);
    }
    if (!held && OthersEnded())
      throw std::runtime_error("a thread that the end of the interpreter stopped has this session");
    if (!held && Interrupted()) throw nb::python_error();
  }
  if (!s_.has_dropped_.exchange(false)) return;
  const std::lock_guard lock(s_.drop_mutex_);
  s_.dropped_.clear();
}

Use::~Use() { s_.mutex.unlock(); }

void Use::Fail(const Status& status) const {
  // An interrupt cancels the computation. Leaving a wait does not.
  if (PyErr_Occurred()) {
    if (!Wait::Left()) (void)s_.session.CancelAll();
    throw nb::python_error();
  }
  if (const auto failure = s_.session.FailureOf(status))
    Raise(failure->status, s_.sources.Find(failure->mark));
  Raise(status);
}

}  // namespace opwire::python
