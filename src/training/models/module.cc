#include "models/module.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/random.h"
#include "base/result.h"
#include "tensor/normal.h"

namespace yard::models {
namespace {

// FNV-1a: a stream of random numbers per parameter name.
uint64_t hash_of(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// Keeps weights apart from the noise that training draws with the same seed.
constexpr uint64_t kSalt = 0x7765'6967'6874'7321;

// Four values out of each Philox block, 24 bits each: all that a float in [-1, 1) can hold.
void fill_uniform(std::span<float> out, uint64_t seed, uint64_t stream, double bound) {
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  const auto scale = static_cast<float>(bound);
  for (size_t begin = 0; begin < out.size(); begin += 4) {
    const uint64_t block = begin / 4;
    const auto words = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                              key);
    for (size_t i = begin; i < std::min(begin + 4, out.size()); ++i) {
      out[i] = (static_cast<float>(words[i - begin] >> 8) * 0x1.0p-23F - 1) * scale;
    }
  }
}

void fill_normal(std::span<float> out, uint64_t seed, uint64_t stream, double scale) {
  tensor::fill_normal({.seed = seed, .sample = stream}, out);
  for (float& value : out) value *= static_cast<float>(scale);
}

// Partial sums in lanes, in an order that no compiler flag changes.
double dot(std::span<const double> a, std::span<const double> b) {
  std::array<double, 8> lanes = {};
  size_t i = 0;
  for (; i + lanes.size() <= a.size(); i += lanes.size())
    for (size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (; i < a.size(); ++i) lanes[i % lanes.size()] += a[i] * b[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Gram and Schmidt's way over `count` vectors that follow each other in `values`.
void orthonormalise(std::span<double> values, size_t count) {
  const size_t width = values.size() / count;
  for (size_t i = 0; i < count; ++i) {
    const auto vector = values.subspan(i * width, width);
    for (size_t before = 0; before < i; ++before) {
      const auto other = values.subspan(before * width, width);
      const double share = dot(vector, other);
      for (size_t k = 0; k < width; ++k) vector[k] -= share * other[k];
    }
    const double scale = 1 / std::sqrt(dot(vector, vector));
    for (double& value : vector) value *= scale;
  }
}

void fill_orthogonal(std::span<float> out, uint64_t seed, uint64_t stream, size_t rows) {
  tensor::fill_normal({.seed = seed, .sample = stream}, out);
  const size_t columns = out.size() / rows;
  const bool by_rows = rows <= columns;
  const auto place = [&](size_t row, size_t column) {
    return by_rows ? row * columns + column : column * rows + row;
  };
  std::vector<double> values(out.size());
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column)
      values[place(row, column)] = out[row * columns + column];
  orthonormalise(values, std::min(rows, columns));
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column)
      out[row * columns + column] = static_cast<float>(values[place(row, column)]);
}

void fill(const std::string& name, const at::Tensor& tensor, uint64_t seed, Init init,
          double fan_in_or_scale) {
  const std::span<float> out{tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
  switch (init) {
    case Init::kUniformFanIn:
      fill_uniform(out, seed ^ kSalt, hash_of(name), 1 / std::sqrt(fan_in_or_scale));
      break;
    case Init::kNormal:
      fill_normal(out, seed ^ kSalt, hash_of(name), fan_in_or_scale);
      break;
    case Init::kOrthogonal:
      fill_orthogonal(out, seed ^ kSalt, hash_of(name), static_cast<size_t>(tensor.size(0)));
      break;
    case Init::kOnes:
      std::ranges::fill(out, 1.0F);
      break;
    case Init::kZeros:
      std::ranges::fill(out, 0.0F);
      break;
  }
}

// Contiguous, of that shape, over a storage that is empty.
at::Tensor without_memory(at::IntArrayRef shape) {
  int64_t element_count = 1;
  std::vector<int64_t> strides(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = element_count;
    element_count *= shape[d];
  }
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), element_count * int64_t{sizeof(float)},
      c10::DataPtr(nullptr, at::kCPU), nullptr, /*resizable=*/false));
  at::Tensor out = at::empty({0}, at::kFloat);
  out.set_(std::move(storage), 0, shape, strides);
  return out;
}

}  // namespace

at::Tensor ParameterList::add(const std::string& name, at::IntArrayRef shape, Init init,
                              double fan_in_or_scale) {
  const bool later = start_.is_later();
  all_.push_back({name, later ? without_memory(shape) : at::empty(shape, at::kFloat)});
  drawn_.push_back({init, fan_in_or_scale});
  if (start_.seed() && !later) start(all_.size() - 1, all_.back().tensor);
  return all_.back().tensor;
}

void ParameterList::start(size_t index, at::Tensor& out) const {
  YARD_CHECK(start_.seed() && out.is_contiguous() && out.sizes() == all_[index].tensor.sizes());
  fill(all_[index].name, out, *start_.seed(), drawn_[index].init, drawn_[index].fan_in_or_scale);
}

std::vector<at::Tensor> ParameterList::under(std::string_view prefix) const {
  std::vector<at::Tensor> out;
  for (const NamedTensor& parameter : all_)
    if (parameter.name.starts_with(prefix)) out.push_back(parameter.tensor);
  return out;
}

void ParameterList::restart(const std::function<std::optional<Init>(const NamedTensor&)>& rule) {
  if (!start_.seed()) return;
  for (size_t i = 0; i < all_.size(); ++i) {
    const auto init = rule(all_[i]);
    if (!init) continue;
    drawn_[i] = {*init, 1};
    if (!start_.is_later()) start(i, all_[i].tensor);
  }
}

Scope Scope::operator/(const std::string& name) const {
  Scope inner = *this;
  inner.prefix_ += name + ".";
  return inner;
}

at::Tensor Scope::add(const std::string& name, at::IntArrayRef shape, Init init,
                      double fan_in_or_scale) const {
  return list_->add(prefix_ + name, shape, init, fan_in_or_scale);
}

int64_t parameter_count(const std::vector<NamedTensor>& parameters) {
  int64_t count = 0;
  for (const NamedTensor& p : parameters) count += p.tensor.numel();
  return count;
}

void set_requires_grad(const std::vector<NamedTensor>& parameters, bool requires_grad) {
  for (const NamedTensor& p : parameters) p.tensor.set_requires_grad(requires_grad);
}

void move_parameters(const std::vector<NamedTensor>& parameters, at::Device device,
                     at::ScalarType dtype) {
  for (const NamedTensor& p : parameters) {
    at::Tensor tensor = p.tensor;
    tensor.mutable_grad().reset();
    tensor.set_data(tensor.detach().to(device, dtype));
  }
}

}  // namespace yard::models
