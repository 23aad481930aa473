// The seam where libtorch's exceptions become our Errors. Public functions of a module that links
// libtorch run their body inside guard_torch().
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <new>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace yard::tensor {

// libtorch has no type of its own for host memory that ran out, only words.
inline Code code_of(const c10::Error& error) {
  const std::string_view what = error.what_without_backtrace();
  const bool no_memory = what.find("DefaultCPUAllocator: ") != std::string_view::npos &&
                         what.find(" memory: you tried to allocate") != std::string_view::npos;
  return no_memory ? Code::kExhausted : Code::kInternal;
}

template <typename Body>  // Body: () -> Result<T>
auto guard_torch(std::string_view doing, Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::OutOfMemoryError& e) {
    return Error{Code::kExhausted, e.what_without_backtrace()}.while_(doing);
  } catch (const c10::Error& e) {
    return Error{code_of(e), e.what_without_backtrace()}.while_(doing);
  } catch (const std::bad_alloc&) {
    return Error{Code::kExhausted, "out of host memory"}.while_(doing);
  } catch (const std::exception& e) {
    return Error{Code::kInternal, e.what()}.while_(doing);
  }
}

}  // namespace yard::tensor
