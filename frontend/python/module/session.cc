// Locks, and what is dropped while they are held.
#include "frontend/python/module/session.h"

#include "frontend/python/module/errors.h"
#include "frontend/python/module/op_cache.h"

namespace opwire::python {
namespace nb = nanobind;

PySession::PySession(Session s, std::string where) : session(std::move(s)), place(std::move(where)), ops(std::make_unique<OpCache>()) {}
PySession::~PySession() = default;

void PySession::Drop(Tensor t) {
  if (mutex.try_lock()) {
    t = Tensor();
    mutex.unlock();
    return;
  }
  const std::lock_guard lock(drop_mutex_);
  dropped_.push_back(std::move(t));
}

Use::Use(PySession& s) : s_(s) {
  if (!s_.mutex.try_lock()) {
    nb::gil_scoped_release released;
    s_.mutex.lock();
  }
  const std::lock_guard lock(s_.drop_mutex_);
  s_.dropped_.clear();
}

Use::~Use() { s_.mutex.unlock(); }

void Use::Fail(const Status& status) const {
  // Who interrupts means what was being computed.
  if (PyErr_Occurred()) {
    (void)s_.session.CancelAll();
    throw nb::python_error();
  }
  if (const auto failure = s_.session.FailureOf(status)) Raise(failure->status, s_.sources.Find(failure->mark));
  Raise(status);
}

}  // namespace opwire::python
