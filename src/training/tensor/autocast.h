// Autocast: while it lives, matrix products and convolutions of this thread compute in bf16.
//
// Weights stay f32; their bf16 copies are kept for the scope's lifetime, so one scope per forward
// pass. The backward pass may run outside it. Not movable; scopes nest.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace yard::tensor {

class Autocast {
 public:
  Autocast(c10::DeviceType device, bool enabled);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const c10::DeviceType device_;
  const bool was_enabled_;
  const c10::ScalarType dtype_before_;
};

}  // namespace yard::tensor
