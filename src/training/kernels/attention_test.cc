// Every vector width that this CPU has, against plain loops in double.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/random.h"
#include "base/testing/vector_targets.h"

namespace yard::kernels {
namespace {

// Rows of one head with other heads' elements between them.
struct Matrix {
  static constexpr size_t kGap = 3;
  static constexpr float kOthers = 777;

  Matrix(size_t rows, size_t width, uint64_t seed)
      : width(width), values(rows * (width + kGap), kOthers) {
    for (size_t i = 0; i < rows * width; ++i) {
      const double uniform = double(random_u64(seed, 0, i) >> 11) * 0x1p-53;
      at(i / width, i % width) = bf16(float(4 * uniform - 2));
    }
  }
  // Values that bf16 holds exactly serve both kinds of elements.
  static float bf16(float x) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xFFFF0000U);
  }
  float& at(size_t r, size_t i) { return values[r * (width + kGap) + i]; }
  float at(size_t r, size_t i) const { return values[r * (width + kGap) + i]; }
  size_t rows() const { return values.size() / (width + kGap); }

  size_t width;
  std::vector<float> values;
};

// The same rows as elements of the kind asked for.
class Elements {
 public:
  Elements(const Matrix& matrix, Element element)
      : element_(element), stride_(ptrdiff_t(matrix.width + Matrix::kGap)), f32_(matrix.values) {
    for (const float x : f32_) bf16_.push_back(uint16_t(std::bit_cast<uint32_t>(x) >> 16));
  }
  ConstRows rows() const { return {.data = data(), .stride = stride_}; }
  Rows rows() { return {.data = const_cast<void*>(data()), .stride = stride_}; }
  float others() const {
    return element_ == Element::kF32 ? Matrix::kOthers : Matrix::bf16(Matrix::kOthers);
  }
  float at(size_t r, size_t i) const {
    const size_t at = r * size_t(stride_) + i;
    if (element_ == Element::kF32) return f32_[at];
    return std::bit_cast<float>(uint32_t(bf16_[at]) << 16);
  }

 private:
  const void* data() const {
    return element_ == Element::kF32 ? static_cast<const void*>(f32_.data()) : bf16_.data();
  }
  Element element_;
  ptrdiff_t stride_;
  std::vector<float> f32_;
  std::vector<uint16_t> bf16_;
};

struct Wanted {
  std::vector<std::vector<double>> out, q, k, v;
};

std::vector<std::vector<double>> zeros(size_t rows, size_t width) {
  return std::vector<std::vector<double>>(rows, std::vector<double>(width));
}

double dot(const Matrix& a, size_t i, const Matrix& b, size_t j) {
  double sum = 0;
  for (size_t w = 0; w < a.width; ++w) sum += double(a.at(i, w)) * b.at(j, w);
  return sum;
}

std::vector<double> probabilities(const Matrix& q, size_t i, const Matrix& k, double scale) {
  std::vector<double> p;
  double most = -1e300, sum = 0;
  for (size_t j = 0; j < k.rows(); ++j) p.push_back(scale * dot(q, i, k, j));
  for (const double score : p) most = std::max(most, score);
  for (double& score : p) sum += score = std::exp(score - most);
  for (double& score : p) score /= sum;
  return p;
}

Wanted plain(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& g, double scale) {
  Wanted to{.out = zeros(q.rows(), q.width),
            .q = zeros(q.rows(), q.width),
            .k = zeros(k.rows(), k.width),
            .v = zeros(v.rows(), v.width)};
  for (size_t i = 0; i < q.rows(); ++i) {
    const auto p = probabilities(q, i, k, scale);
    double mean = 0;
    for (size_t j = 0; j < k.rows(); ++j) mean += p[j] * dot(g, i, v, j);
    for (size_t j = 0; j < k.rows(); ++j) {
      const double score_gradient = scale * p[j] * (dot(g, i, v, j) - mean);
      for (size_t w = 0; w < q.width; ++w) {
        to.out[i][w] += p[j] * v.at(j, w);
        to.q[i][w] += score_gradient * k.at(j, w);
        to.k[j][w] += score_gradient * q.at(i, w);
        to.v[j][w] += p[j] * g.at(i, w);
      }
    }
  }
  return to;
}

void expect_near(const Elements& got, const std::vector<std::vector<double>>& want,
                 double tolerance, const char* what) {
  double most = 0;
  for (const auto& row : want)
    for (const double x : row) most = std::max(most, std::abs(x));
  for (size_t r = 0; r < want.size(); ++r) {
    for (size_t i = 0; i < want[r].size(); ++i)
      ASSERT_NEAR(got.at(r, i), want[r][i], tolerance * most) << what << " " << r << " " << i;
    for (size_t gap = 0; gap < Matrix::kGap; ++gap)
      ASSERT_EQ(got.at(r, want[r].size() + gap), got.others()) << what << " beside its rows";
  }
}

struct Case {
  size_t queries, keys, width;
};

void check(const Case& c, Element element) {
  SCOPED_TRACE(testing::Message() << c.queries << " x " << c.keys << " of " << c.width);
  const Matrix q(c.queries, c.width, 1), k(c.keys, c.width, 2), v(c.keys, c.width, 3),
      g(c.queries, c.width, 4);
  const float scale = 1 / std::sqrt(float(c.width));
  const Wanted want = plain(q, k, v, g, scale);
  const Elements eq(q, element), ek(k, element), ev(v, element), eg(g, element);
  Elements out(g, element), dq(g, element), dk(k, element), dv(k, element);
  const HeadShape shape{
      .queries = c.queries, .keys = c.keys, .width = c.width, .scale = scale, .element = element};
  std::vector<float> log_sums(c.queries);
  Scratch scratch;
  attention_forward(shape, eq.rows(), ek.rows(), ev.rows(), out.rows(), log_sums.data(), scratch);
  attention_backward(shape, eq.rows(), ek.rows(), ev.rows(), eg.rows(), log_sums.data(),
                     {.q = dq.rows(), .k = dk.rows(), .v = dv.rows()}, scratch);
  const double tolerance = element == Element::kF32 ? 2e-6 : 4.1e-3;
  expect_near(out, want.out, tolerance, "out");
  expect_near(dq, want.q, tolerance, "dq");
  expect_near(dk, want.k, tolerance, "dk");
  expect_near(dv, want.v, tolerance, "dv");
}

constexpr Case kCases[] = {{1, 1, 1},     {5, 3, 7},     {64, 64, 32},   {33, 77, 16},
                           {100, 31, 40}, {17, 130, 80}, {40, 1100, 24}, {9, 16, 129}};

TEST(Attention, OutputsAndGradientsEqualPlainLoops) {
  for_each_vector_target([] {
    for (const Case& c : kCases) check(c, Element::kF32);
  });
}

TEST(Attention, RowsOfBf16AreReadAndWrittenInPlace) {
  for_each_vector_target([] {
    for (const Case& c : kCases) check(c, Element::kBf16);
  });
}

TEST(Attention, ScoresBeyondTheRangeOfExpStayFinite) {
  Matrix q(4, 8, 1), k(5, 8, 2);
  for (float& x : q.values) x *= 400;
  const Elements eq(q, Element::kF32), ek(k, Element::kF32);
  Elements out(q, Element::kF32);
  std::vector<float> log_sums(4);
  Scratch scratch;
  attention_forward({.queries = 4, .keys = 5, .width = 8, .scale = 1}, eq.rows(), ek.rows(),
                    ek.rows(), out.rows(), log_sums.data(), scratch);
  for (size_t r = 0; r < 4; ++r)
    for (size_t i = 0; i < 8; ++i) ASSERT_LE(std::abs(out.at(r, i)), 2.0F);
}

}  // namespace
}  // namespace yard::kernels
