// The seam where libtorch's exceptions become our Errors. Public functions of a module that links
// libtorch run their body inside guard_torch().
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <new>
#include <utility>

#include "base/result.h"

namespace yard::tensor {

template <typename Body>  // Body: () -> Result<T>
auto guard_torch(std::string_view doing, Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::OutOfMemoryError& e) {
    return Error{Code::kExhausted, e.what_without_backtrace()}.while_(doing);
  } catch (const c10::Error& e) {
    return Error{Code::kInternal, e.what_without_backtrace()}.while_(doing);
  } catch (const std::bad_alloc&) {
    return Error{Code::kExhausted, "out of host memory"}.while_(doing);
  } catch (const std::exception& e) {
    return Error{Code::kInternal, e.what()}.while_(doing);
  }
}

}  // namespace yard::tensor
