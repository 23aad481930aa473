// FlopCounter: floating-point operations of what this thread computes with libtorch while it lives.
//
// Counts convolutions, matrix products and attention, forward and backward, by the sizes of their
// operands; a multiplication and an addition are two. What else there is, sums, norms and
// activations, is little beside them. One at a time per thread.
#pragma once

#include <cstdint>

namespace yard::loop {

class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  double flops() const { return flops_; }

 private:
  double flops_ = 0;
  uint64_t callback_ = 0;
};

}  // namespace yard::loop
