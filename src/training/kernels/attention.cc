#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

// Highway compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "kernels/small_gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace yard::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Takes matrices from one piece of memory.
class Carver {
 public:
  explicit Carver(float* begin) : next_(begin) {}
  float* take(size_t count) {
    float* const taken = next_;
    next_ += count;
    return taken;
  }

 private:
  float* next_;
};

struct Padded {
  explicit Padded(const HeadShape& shape)
      : keys(padded(shape.keys)),
        width(padded(shape.width)),
        // A few MiB of scores at most, and enough rows for the products to reuse what they load.
        block(keys <= 1024 ? 32 : 16) {}

  size_t keys, width, block;
};

// Exponentials of `count` scores less `shift` in place; returns their sum. What follows up to
// `padded_count` becomes zero.
float exponentials(float* scores, size_t count, size_t padded_count, float shift) {
  const hn::CappedTag<float, kLanesMax> d;
  const size_t lanes = hn::Lanes(d);
  auto sum = hn::Zero(d);
  const auto shifts = hn::Set(d, shift);
  for (size_t i = 0; i < padded_count; i += lanes) {
    const auto e = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + i), shifts));
    const auto kept =
        i + lanes <= count ? e : hn::IfThenElseZero(hn::FirstN(d, i < count ? count - i : 0), e);
    hn::StoreU(kept, d, scores + i);
    sum = hn::Add(sum, kept);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

float largest(const float* scores, size_t count) {
  const hn::CappedTag<float, kLanesMax> d;
  const size_t lanes = hn::Lanes(d);
  float most = scores[0];
  size_t i = 0;
  if (count >= lanes) {
    auto most_of = hn::LoadU(d, scores);
    for (i = lanes; i + lanes <= count; i += lanes)
      most_of = hn::Max(most_of, hn::LoadU(d, scores + i));
    most = hn::GetLane(hn::MaxOfLanes(d, most_of));
  }
  for (; i < count; ++i) most = std::max(most, scores[i]);
  return most;
}

void scale_row(float* row, size_t padded_count, float factor) {
  const hn::CappedTag<float, kLanesMax> d;
  const auto factors = hn::Set(d, factor);
  for (size_t i = 0; i < padded_count; i += hn::Lanes(d))
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), factors), d, row + i);
}

// The gradient of the scores from that of the probabilities, in place: p * (dp - sum of p * dp).
void softmax_backward(const float* p, float* dp, size_t padded_count) {
  const hn::CappedTag<float, kLanesMax> d;
  const size_t lanes = hn::Lanes(d);
  auto sum = hn::Zero(d);
  for (size_t i = 0; i < padded_count; i += lanes)
    sum = hn::MulAdd(hn::LoadU(d, p + i), hn::LoadU(d, dp + i), sum);
  const auto all = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum)));
  for (size_t i = 0; i < padded_count; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, p + i), hn::Sub(hn::LoadU(d, dp + i), all)), d, dp + i);
}

void forward(const HeadShape& shape, ConstRows q, ConstRows k, ConstRows v, Rows out,
             float* log_sums, Scratch& scratch) {
  const Padded to(shape);
  scratch.resize((to.keys * 2 + to.block * 2) * to.width + to.block * to.keys);
  Carver carver(scratch.data());
  float* const values = carver.take(to.keys * to.width);
  float* const keys = carver.take(to.keys * to.width);
  float* const queries = carver.take(to.block * to.width);
  float* const results = carver.take(to.block * to.width);
  float* const scores = carver.take(to.block * to.keys);
  const Block all_keys{.rows = shape.keys, .width = shape.width};
  read_transposed(k, all_keys, shape.element, keys, to.keys, queries);
  read_rows(v, all_keys, shape.element, 1, values, to.keys, to.width);
  for (size_t first = 0; first < shape.queries; first += to.block) {
    const Block block{
        .first = first, .rows = std::min(to.block, shape.queries - first), .width = shape.width};
    const size_t rows = padded_rows(block.rows);
    read_rows(q, block, shape.element, shape.scale, queries, rows, to.width);
    multiply<Left::kRows>(queries, to.width, keys, to.keys, rows, to.keys, shape.width, scores,
                          Sum::kNew);
    for (size_t r = 0; r < block.rows; ++r) {
      float* const row = scores + r * to.keys;
      const float most = largest(row, shape.keys);
      const float sum = exponentials(row, shape.keys, to.keys, most);
      log_sums[first + r] = most + std::log(sum);
      scale_row(row, to.keys, 1 / sum);
    }
    multiply<Left::kRows>(scores, to.keys, values, to.width, rows, to.width, shape.keys, results,
                          Sum::kNew);
    write_rows(results, to.width, block, shape.element, 1, out);
  }
}

void backward(const HeadShape& shape, ConstRows q, ConstRows k, ConstRows v, ConstRows out_gradient,
              const float* log_sums, const HeadGradients& gradients, Scratch& scratch) {
  const Padded to(shape);
  scratch.resize((to.keys * 5 + to.block * 3) * to.width + to.block * to.keys * 2);
  Carver carver(scratch.data());
  float* const keys_as_rows = carver.take(to.keys * to.width);
  float* const keys = carver.take(to.keys * to.width);
  float* const values = carver.take(to.keys * to.width);
  float* const key_gradients = carver.take(to.keys * to.width);
  float* const value_gradients = carver.take(to.keys * to.width);
  float* const queries = carver.take(to.block * to.width);
  float* const out_gradients = carver.take(to.block * to.width);
  float* const query_gradients = carver.take(to.block * to.width);
  float* const p = carver.take(to.block * to.keys);
  float* const dp = carver.take(to.block * to.keys);
  const Block all_keys{.rows = shape.keys, .width = shape.width};
  read_rows(k, all_keys, shape.element, 1, keys_as_rows, to.keys, to.width);
  read_transposed(k, all_keys, shape.element, keys, to.keys, queries);
  read_transposed(v, all_keys, shape.element, values, to.keys, queries);
  for (size_t first = 0; first < shape.queries; first += to.block) {
    const Block block{
        .first = first, .rows = std::min(to.block, shape.queries - first), .width = shape.width};
    const size_t rows = padded_rows(block.rows);
    read_rows(q, block, shape.element, shape.scale, queries, rows, to.width);
    read_rows(out_gradient, block, shape.element, 1, out_gradients, rows, to.width);
    multiply<Left::kRows>(queries, to.width, keys, to.keys, rows, to.keys, shape.width, p,
                          Sum::kNew);
    multiply<Left::kRows>(out_gradients, to.width, values, to.keys, rows, to.keys, shape.width, dp,
                          Sum::kNew);
    for (size_t r = 0; r < block.rows; ++r) {
      exponentials(p + r * to.keys, shape.keys, to.keys, log_sums[first + r]);
      softmax_backward(p + r * to.keys, dp + r * to.keys, to.keys);
    }
    const Sum sum = first == 0 ? Sum::kNew : Sum::kAdd;
    multiply<Left::kColumns>(p, to.keys, out_gradients, to.width, to.keys, to.width, block.rows,
                             value_gradients, sum);
    multiply<Left::kColumns>(dp, to.keys, queries, to.width, to.keys, to.width, block.rows,
                             key_gradients, sum);
    multiply<Left::kRows>(dp, to.keys, keys_as_rows, to.width, rows, to.width, shape.keys,
                          query_gradients, Sum::kNew);
    write_rows(query_gradients, to.width, block, shape.element, shape.scale, gradients.q);
  }
  write_rows(key_gradients, to.width, all_keys, shape.element, 1, gradients.k);
  write_rows(value_gradients, to.width, all_keys, shape.element, 1, gradients.v);
}

}  // namespace yard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::kernels {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void attention_forward(const HeadShape& shape, ConstRows q, ConstRows k, ConstRows v, Rows out,
                       float* log_sums, Scratch& scratch) {
  YARD_CHECK(shape.keys > 0 && shape.width > 0);
  HWY_DYNAMIC_DISPATCH(forward)(shape, q, k, v, out, log_sums, scratch);
}

void attention_backward(const HeadShape& shape, ConstRows q, ConstRows k, ConstRows v,
                        ConstRows out_gradient, const float* log_sums,
                        const HeadGradients& gradients, Scratch& scratch) {
  YARD_CHECK(shape.keys > 0 && shape.width > 0 && shape.queries > 0);
  HWY_DYNAMIC_DISPATCH(backward)(shape, q, k, v, out_gradient, log_sums, gradients, scratch);
}

}  // namespace yard::kernels
#endif
