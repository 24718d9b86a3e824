// Counts the threads that are about to take the interpreter, and stops those that are too late.
#include "frontend/python/module/interpreter.h"

#include <unistd.h>

#include <atomic>
#include <thread>

namespace opwire::python {
namespace {

std::atomic<int> coming = 0;
std::atomic<bool> ended = false;
std::atomic<std::thread::id> last;  // this thread continues

// Surrounds calls that take the interpreter.
class Way {
 public:
  Way() {
    ++coming;
    if (!ended || last.load() == std::this_thread::get_id()) return;
    --coming;
    for (;;) pause();
  }
  ~Way() { --coming; }
};

}  // namespace

Released::~Released() {
  const Way way;
  PyEval_RestoreThread(state_);
}

Acquired::Acquired() {
  const Way way;
  state_ = PyGILState_Ensure();
}

void EndOthers() {
  last = std::this_thread::get_id();
  ended = true;
  PyThreadState* const state = PyEval_SaveThread();
  while (coming > 0) usleep(100);
  PyEval_RestoreThread(state);
}

bool OthersEnded() { return ended; }

}  // namespace opwire::python
