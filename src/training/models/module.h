// What a model is made of: parameters by name, and the layers that use them.
//
// Names, shapes and order are those of the reference implementation (diffusers, transformers), so
// that weights travel as they are. A layer holds tensor handles; the ParameterList of its model
// holds the same handles by name, so that loading, moving and training need no search.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard::models {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

enum class Init : uint8_t {
  kUniformFanIn,  // U(-1/sqrt(fan_in), 1/sqrt(fan_in)): PyTorch's default of Linear and Conv2d
  kNormal,        // N(0, scale^2)
  kOrthogonal,    // rows of [rows, the rest] orthonormal, or the columns where those are fewer
  kOnes,
  kZeros,
};

// How the parameters of a new model start: drawn from a seed; without one left unset, for a model
// whose weights are read from a file.
class WeightStart {
 public:
  WeightStart(std::optional<uint64_t> seed) : seed_(seed) {}
  WeightStart(std::nullopt_t) {}
  WeightStart(uint64_t seed) : seed_(seed) {}
  // The parameters have shapes but no memory, until someone gives them some; ParameterList::start()
  // draws their values then.
  static WeightStart later(uint64_t seed) {
    WeightStart start(seed);
    start.later_ = true;
    return start;
  }
  std::optional<uint64_t> seed() const { return seed_; }
  bool is_later() const { return later_; }

 private:
  std::optional<uint64_t> seed_;
  bool later_ = false;
};

// Where a model's constructor gets its parameters. Values are drawn from (seed, full name,
// element), so that a parameter's start depends neither on the others nor on the machine.
class ParameterList {
 public:
  explicit ParameterList(WeightStart start) : start_(start) {}

  // An f32 CPU leaf. `fan_in` and `scale` as Init needs them.
  at::Tensor add(const std::string& name, at::IntArrayRef shape, Init init,
                 double fan_in_or_scale = 1);

  // Starts those parameters differently for which `rule` gives an Init; fan_in and scale are 1.
  void restart(const std::function<std::optional<Init>(const NamedTensor&)>& rule);

  const std::vector<NamedTensor>& all() const { return all_; }
  // The parameters whose names begin with `prefix`.
  std::vector<at::Tensor> under(std::string_view prefix) const;

  // Draws the start of parameter `index` into `out`, contiguous f32 CPU memory of its shape. Only
  // with a seed.
  void start(size_t index, at::Tensor& out) const;

 private:
  struct Drawn {
    Init init;
    double fan_in_or_scale;
  };
  WeightStart start_;
  std::vector<NamedTensor> all_;
  std::vector<Drawn> drawn_;  // how each starts
};

// A dotted place in the ParameterList: scope("down_blocks", 0) / "resnets" ...
class Scope {
 public:
  explicit Scope(ParameterList& list) : list_(&list) {}
  Scope operator/(const std::string& name) const;
  Scope operator/(int64_t index) const { return *this / std::to_string(index); }

  at::Tensor add(const std::string& name, at::IntArrayRef shape, Init init,
                 double fan_in_or_scale = 1) const;
  // What the names of parameters added here begin with; see ParameterList::under().
  const std::string& prefix() const { return prefix_; }

 private:
  ParameterList* list_;
  std::string prefix_;  // empty or ending in '.'
};

// The sum of elements over all parameters.
int64_t parameter_count(const std::vector<NamedTensor>& parameters);
void set_requires_grad(const std::vector<NamedTensor>& parameters, bool requires_grad);
// Moves the values; every handle to a parameter, a layer's too, sees the new ones. Gradients are
// dropped.
void move_parameters(const std::vector<NamedTensor>& parameters, at::Device device,
                     at::ScalarType dtype);

}  // namespace yard::models
