// The only file that exceptions of libtorch reach.
#include "kernels/torch/module/exceptions.h"

#include <c10/util/Exception.h>

#include <string_view>

namespace opwire::torch_module {
namespace {

// Of absl::StatusCode.
enum Code : int32_t {
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13
};

int Fail(const opw_torch_host& host, Code code, std::string_view what) noexcept {
  try {
    what = what.substr(0, what.find('\n'));  // then come lines of the library's own
    host.fail(host.context, code, ("libtorch: " + std::string(what)).c_str());
  } catch (...) {
    host.fail(host.context, kResourceExhausted, "libtorch: no memory for its message");
  }
  return OPW_FAILED;
}

}  // namespace

int Guarded(const opw_torch_host& host, void (*work)(void*), void* context) noexcept {
  try {
    work(context);
    return OPW_OK;
  } catch (const c10::OutOfMemoryError& e) {
    return Fail(host, kResourceExhausted, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    return Fail(host, kUnimplemented, e.what_without_backtrace());
  } catch (const c10::IndexError& e) {
    return Fail(host, kOutOfRange, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    return Fail(host, kInvalidArgument, e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    return Fail(host, kInvalidArgument, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    return Fail(host, kInternal, e.what_without_backtrace());
  } catch (const std::bad_alloc& e) {
    return Fail(host, kResourceExhausted, e.what());
  } catch (const std::exception& e) {
    return Fail(host, kInternal, e.what());
  } catch (...) {
    return Fail(host, kInternal, "an exception of no known type");
  }
}

}  // namespace opwire::torch_module
