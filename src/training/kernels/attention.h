// Attention of one head on a CPU, forward and backward, in f32 arithmetic by the widest vectors
// that the CPU has. It reads and writes rows in place where a projection left them, so that no head
// is copied out of [B, L, heads*d] and none turned from bf16 to f32 in memory.
//
// softmax(scale q k^T) v, without a mask. Scores exist for a block of queries at a time: memory is
// O(keys), not O(queries * keys). The backward pass computes them again from `log_sums`.
// The results do not depend on how heads are spread over threads; functions hold no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace yard::kernels {

enum class Element : uint8_t { kF32, kBf16 };  // bf16 rounds to nearest even

// Rows of one head inside a larger tensor: row r begins `stride` elements after row r - 1.
struct ConstRows {
  const void* data = nullptr;
  ptrdiff_t stride = 0;
};
struct Rows {
  void* data = nullptr;
  ptrdiff_t stride = 0;
};

struct HeadShape {
  size_t queries = 0;
  size_t keys = 0;   // > 0
  size_t width = 0;  // of a query, a key and a value; > 0
  float scale = 1;
  Element element = Element::kF32;  // of all rows
};

// Working memory; grows to what a head needs and may be used for the next one.
using Scratch = std::vector<float>;

// out: [queries, width]. log_sums [queries]: log of the sum of exp of a query's scaled scores.
void attention_forward(const HeadShape& shape, ConstRows q, ConstRows k, ConstRows v, Rows out,
                       float* log_sums, Scratch& scratch);

struct HeadGradients {
  Rows q, k, v;  // written, not added to
};

// `log_sums` as the forward pass of the same q and k wrote them.
void attention_backward(const HeadShape& shape, ConstRows q, ConstRows k, ConstRows v,
                        ConstRows out_gradient, const float* log_sums,
                        const HeadGradients& gradients, Scratch& scratch);

}  // namespace yard::kernels
