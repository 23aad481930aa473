#include "models/module.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <numbers>
#include <span>

#include "base/random.h"
#include "base/result.h"

namespace yard::models {
namespace {

// FNV-1a: a stream of random numbers per parameter name.
uint64_t hash_of(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

void fill_uniform(std::span<float> out, uint64_t seed, uint64_t stream, double bound) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>((2 * random_uniform(seed, stream, i) - 1) * bound);
  }
}

// Box-Muller.
void fill_normal(std::span<float> out, uint64_t seed, uint64_t stream, double scale) {
  for (size_t i = 0; i < out.size(); ++i) {
    const double u = 1 - random_uniform(seed, stream, 2 * i);
    const double angle = 2 * std::numbers::pi * random_uniform(seed, stream, 2 * i + 1);
    out[i] = static_cast<float>(scale * std::sqrt(-2 * std::log(u)) * std::cos(angle));
  }
}

}  // namespace

at::Tensor ParameterList::add(const std::string& name, at::IntArrayRef shape, Init init,
                              double fan_in_or_scale) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  const std::span<float> out(tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel()));
  switch (init) {
    case Init::kUniformFanIn:
      fill_uniform(out, seed_, hash_of(name), 1 / std::sqrt(fan_in_or_scale));
      break;
    case Init::kNormal:
      fill_normal(out, seed_, hash_of(name), fan_in_or_scale);
      break;
    case Init::kOnes:
      std::fill(out.begin(), out.end(), 1.0F);
      break;
    case Init::kZeros:
      std::fill(out.begin(), out.end(), 0.0F);
      break;
  }
  all_.push_back({name, tensor});
  return tensor;
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

}  // namespace yard::models
