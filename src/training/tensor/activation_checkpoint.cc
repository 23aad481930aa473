#include "tensor/activation_checkpoint.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <utility>

namespace yard::tensor {
namespace {

using torch::autograd::variable_list;

at::Tensor random_state(const at::Generator& generator) {
  at::Generator handle = generator;
  const std::lock_guard lock(handle.mutex());
  return handle.get_state();
}

void set_random_state(const at::Generator& generator, const at::Tensor& state) {
  at::Generator handle = generator;
  const std::lock_guard lock(handle.mutex());
  handle.set_state(state);
}

// What a computation depends on besides its arguments.
class Surroundings {
 public:
  explicit Surroundings(at::Device device)
      : device_(device),
        cpu_state_(random_state(cpu())),
        device_state_(device.is_cpu() ? at::Tensor() : random_state(own())),
        autocast_enabled_(at::autocast::is_autocast_enabled(device.type())),
        autocast_dtype_(at::autocast::get_autocast_dtype(device.type())) {}

  void restore() const {
    set_random_state(cpu(), cpu_state_);
    if (device_state_.defined()) set_random_state(own(), device_state_);
    at::autocast::set_autocast_enabled(device_.type(), autocast_enabled_);
    at::autocast::set_autocast_dtype(device_.type(), autocast_dtype_);
  }

  at::Device device() const { return device_; }

 private:
  static const at::Generator& cpu() { return at::globalContext().defaultGenerator(at::kCPU); }
  const at::Generator& own() const { return at::globalContext().defaultGenerator(device_); }

  at::Device device_;
  at::Tensor cpu_state_, device_state_;
  bool autocast_enabled_;
  at::ScalarType autocast_dtype_;
};

// Puts back, at its end, what was there at its beginning.
class Excursion {
 public:
  explicit Excursion(const Surroundings& to) : before_(to.device()) {
    to.restore();
    at::autocast::increment_nesting();
  }
  ~Excursion() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    before_.restore();
  }
  Excursion(const Excursion&) = delete;
  Excursion& operator=(const Excursion&) = delete;

 private:
  const Surroundings before_;
};

class SegmentBackward final : public torch::autograd::Node {
 public:
  SegmentBackward(SegmentForward forward, const std::vector<at::Tensor>& inputs,
                  std::vector<at::Tensor> parameters, Surroundings surroundings)
      : forward_(std::move(forward)),
        parameters_(std::move(parameters)),
        surroundings_(std::move(surroundings)) {
    for (const at::Tensor& input : inputs) {
      needs_gradient_.push_back(input.defined() && input.requires_grad());
      inputs_.emplace_back(input, /*is_output=*/false);
    }
  }

  variable_list apply(variable_list&& gradients) override {
    const size_t edge_count = inputs_.size() + parameters_.size();
    if (!gradients[0].defined()) return variable_list(edge_count);
    const std::vector<at::Tensor> inputs = fresh_inputs();
    const at::Tensor out = recompute(inputs);
    variable_list wanted;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (needs_gradient_[i]) wanted.push_back(inputs[i]);
    wanted.insert(wanted.end(), parameters_.begin(), parameters_.end());
    variable_list found = torch::autograd::grad({out}, wanted, {gradients[0]}, std::nullopt,
                                                /*create_graph=*/false, /*allow_unused=*/true);
    variable_list all;
    auto next = found.begin();
    for (const bool needed : needs_gradient_) all.push_back(needed ? *next++ : at::Tensor());
    all.insert(all.end(), next, found.end());
    return all;
  }

  void release_variables() override {
    for (torch::autograd::SavedVariable& input : inputs_) input.reset_data();
  }

 private:
  // Leaves, so that the inner backward pass ends at them.
  std::vector<at::Tensor> fresh_inputs() {
    std::vector<at::Tensor> out;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const at::Tensor input = inputs_[i].unpack();
      out.push_back(input.defined() ? input.detach() : input);
      if (needs_gradient_[i]) out.back().set_requires_grad(true);
    }
    return out;
  }

  at::Tensor recompute(const std::vector<at::Tensor>& inputs) const {
    const c10::AutoGradMode with_graph(true);
    const Excursion back_then(surroundings_);
    return forward_(inputs);
  }

  const SegmentForward forward_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<bool> needs_gradient_;
  const std::vector<at::Tensor> parameters_;
  const Surroundings surroundings_;
};

}  // namespace

at::Tensor checkpointed(const SegmentForward& forward, std::vector<at::Tensor> inputs,
                        std::vector<at::Tensor> parameters) {
  std::erase_if(parameters, [](const at::Tensor& p) { return !p.requires_grad(); });
  variable_list all = inputs;
  all.insert(all.end(), parameters.begin(), parameters.end());
  bool needed = false;
  for (const at::Tensor& t : all) needed = needed || (t.defined() && t.requires_grad());
  if (!needed || !c10::GradMode::is_enabled()) return forward(inputs);
  Surroundings surroundings(inputs.empty() ? at::Device(at::kCPU) : inputs[0].device());
  at::Tensor out;
  {
    const c10::AutoGradMode without_graph(false);
    out = forward(inputs);
  }
  // The output may be an input, or a view of one.
  out = out.detach();
  auto node = c10::make_intrusive<SegmentBackward>(forward, inputs, std::move(parameters),
                                                   std::move(surroundings));
  node->set_next_edges(torch::autograd::collect_next_edges(all));
  torch::autograd::set_history(out, c10::intrusive_ptr<torch::autograd::Node>(std::move(node)));
  return out;
}

}  // namespace yard::tensor
