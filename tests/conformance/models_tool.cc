// Models and schedulers for tests/conformance/test_models.py and test_schedulers.py: a JSON file
// with a list of jobs is its argument, tensors travel in safetensors files.
//
//   {"model", "in", "out", "saved"}   loads the folder, runs it on the tensors of `in`, and saves
//   it
//       again as `saved`. Tensors of `in` named "loss.NAME" weigh the output NAME in a loss; out
//       come "output.NAME", and that loss's "gradient.PARAMETER" and "input_gradient.NAME".
//   {"scheduler", "in", "out", "saved", "steps", "eta", "mu"}   samples along "outputs" [steps,
//   ...]
//       from "sample", with "noise" [steps, ...]: "timesteps", "inputs", "samples" and
//       "initial_scale"; "training.noisy" and "training.target" of "clean" and "timesteps".
#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <cstdio>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "models/model_folder.h"
#include "models/safetensors.h"
#include "models/sampling_step.h"
#include "tensor/guard_torch.h"

namespace yard::models {
namespace {

constexpr std::string_view kLoss = "loss.";

Result<NamedModel::Inputs> read_inputs(const std::string& path) {
  YARD_ASSIGN(const SafetensorsFile file, read_safetensors(path));
  NamedModel::Inputs inputs;
  for (const NamedTensor& t : file.tensors) inputs[t.name] = t.tensor;
  return inputs;
}

// Takes the weights of the loss out of the inputs.
NamedModel::Inputs take_weights(NamedModel::Inputs& inputs) {
  NamedModel::Inputs weights;
  for (const auto& [name, tensor] : inputs)
    if (name.starts_with(kLoss)) weights[name.substr(kLoss.size())] = tensor;
  for (const auto& [name, tensor] : weights) inputs.erase(std::string(kLoss) + name);
  return weights;
}

void backward(const std::vector<NamedTensor>& outputs, const NamedModel::Inputs& weights) {
  at::Tensor loss;
  for (const NamedTensor& output : outputs) {
    const auto weight = weights.find(output.name);
    if (weight == weights.end()) continue;
    const at::Tensor term = (output.tensor * weight->second).sum();
    loss = loss.defined() ? loss + term : term;
  }
  if (loss.defined()) loss.backward();
}

void add_gradient(std::vector<NamedTensor>& out, const std::string& name,
                  const at::Tensor& tensor) {
  if (tensor.grad().defined()) out.push_back({name, tensor.grad()});
}

Status run_model(const Json& job) {
  const std::string folder = job.at("model"), in_path = job.at("in");
  YARD_ASSIGN(const auto model, NamedModel::load(folder));
  YARD_ASSIGN(NamedModel::Inputs inputs, read_inputs(in_path));
  const NamedModel::Inputs weights = take_weights(inputs);
  set_requires_grad(model->parameters(), true);
  for (auto& [name, tensor] : inputs)
    if (tensor.is_floating_point()) tensor.set_requires_grad(true);
  YARD_ASSIGN(const std::vector<NamedTensor> outputs, model->forward(inputs, in_path));
  backward(outputs, weights);
  std::vector<NamedTensor> out;
  for (const NamedTensor& t : outputs) out.push_back({"output." + t.name, t.tensor});
  for (const NamedTensor& p : model->parameters())
    add_gradient(out, "gradient." + p.name, p.tensor);
  for (const auto& [name, tensor] : inputs) add_gradient(out, "input_gradient." + name, tensor);
  YARD_TRY(write_safetensors(job.at("out").get<std::string>(), out));
  YARD_ASSIGN(const Json config, read_config(folder));
  YARD_ASSIGN(const ModelKind kind, kind_of(config, folder));
  return save_model(job.at("saved"), kind, config, model->parameters());
}

Status run_scheduler(const Json& job) {
  YARD_ASSIGN(const SchedulerConfig config, read_scheduler(job.at("scheduler")));
  YARD_TRY(save_scheduler(job.at("saved"), config));
  SamplingOptions options{.step_count = job.at("steps"), .eta = job.at("eta"), .mu = {}};
  if (!job.at("mu").is_null()) options.mu = job.at("mu").get<double>();
  YARD_ASSIGN(const SamplingPlan plan, plan_sampling(config, options));
  YARD_ASSIGN(NamedModel::Inputs in, read_inputs(job.at("in")));
  std::vector<at::Tensor> inputs, samples;
  std::vector<double> timesteps;
  SamplingResult now{.next = in["sample"]};
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const SamplingStep& step = plan.steps[i];
    timesteps.push_back(step.timestep);
    inputs.push_back(model_input(step, now.next));
    const std::optional<at::Tensor> before = i > 0 ? std::optional(now.clean) : std::nullopt;
    now = take_step(step, now.next, in["outputs"][index], before, in["noise"][index]);
    samples.push_back(now.next);
  }
  const TrainingNoise training(config);
  const at::Tensor& t = in["timesteps"];
  return write_safetensors(job.at("out").get<std::string>(),
                           {{"timesteps", at::tensor(timesteps, at::kDouble)},
                            {"inputs", at::stack(inputs)},
                            {"samples", at::stack(samples)},
                            {"initial_scale", at::tensor(plan.initial_scale, at::kDouble)},
                            {"training.noisy", training.noisy(in["clean"], in["sample"], t)},
                            {"training.target", training.target(in["clean"], in["sample"], t)}});
}

Status run(const std::string& path) {
  YARD_ASSIGN(const std::string text, read_file(path));
  YARD_ASSIGN(const Json jobs, parse_json(text, path));
  return tensor::guard_torch("jobs of " + path, [&]() -> Status {
    for (const Json& job : jobs)
      YARD_TRY(job.contains("model") ? run_model(job) : run_scheduler(job));
    return Ok{};
  });
}

}  // namespace
}  // namespace yard::models

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("models_tool JOBS.json\n", stderr);
    return 2;
  }
  const yard::Status status = yard::models::run(argv[1]);
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 1;
}
