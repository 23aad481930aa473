#include "loop/checkpointer.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <span>

#include "base/file.h"
#include "base/log.h"
#include "loop/agreement.h"
#include "models/model_folder.h"
#include "models/safetensors.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

using models::NamedTensor;
using TensorFiles = std::map<std::string, std::vector<NamedTensor>>;

// "unet.conv_in.weight" goes to "model-unet.safetensors" as "conv_in.weight".
std::string file_of(const std::string& parameter) {
  return "model-" + parameter.substr(0, parameter.find('.')) + ".safetensors";
}

TensorFiles by_file(const std::vector<NamedTensor>& parameters) {
  TensorFiles files;
  for (const NamedTensor& p : parameters)
    files[file_of(p.name)].push_back({p.name.substr(p.name.find('.') + 1), p.tensor});
  return files;
}

// Copies of the weights that later steps leave alone: `trained` are copies already, and take the
// place of the networks' own.
std::vector<NamedTensor> copies(const Networks& networks, const std::vector<NamedTensor>& trained) {
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& t : trained) by_name.emplace(t.name, t.tensor);
  std::vector<NamedTensor> all = networks.parameters();
  for (NamedTensor& p : all) {
    const auto it = by_name.find(p.name);
    p.tensor = it == by_name.end() ? p.tensor.detach().clone() : it->second;
  }
  return all;
}

// Empty on ranks other than 0.
Result<TensorFiles> snapshot(const Networks& networks, const Trainee* trainee, bool wanted) {
  TraineeTensors state;
  if (trainee != nullptr) {
    YARD_ASSIGN(state, trainee->snapshot(wanted));
  }
  if (!wanted) return TensorFiles();
  TensorFiles files = by_file(copies(networks, state.weights));
  if (trainee == nullptr) return files;
  files["optimizer.safetensors"] = std::move(state.optimizer);
  if (!state.ema.empty()) files["ema.safetensors"] = std::move(state.ema);
  return files;
}

Status write(CheckpointFolder folder, const TensorFiles& tensors, const Json& state,
             int64_t global_step, int64_t keep) {
  std::vector<CheckpointFile> files = {{"state.json", state.dump(2) + "\n"}};
  for (const auto& [name, content] : tensors) {
    YARD_ASSIGN(std::string bytes, models::safetensors_bytes(content));
    files.push_back({name, std::move(bytes)});
  }
  const Json facts = {{"stage_index", state["stage_index"]}, {"world_size", state["world_size"]}};
  YARD_TRY(folder.write(global_step, files, facts));
  return folder.clean(keep);
}

Status load_weights(Networks& networks, const std::string& path) {
  for (const auto& [name, parameters] : by_file(networks.parameters())) {
    YARD_ASSIGN(const auto file, models::read_safetensors(path + "/" + name));
    YARD_TRY(models::copy_parameters(file.tensors, parameters, path + "/" + name));
  }
  return Ok{};
}

}  // namespace

Checkpointer::~Checkpointer() {
  if (pending_) pending_->outcome.wait();
}

Result<std::optional<LoadedCheckpoint>> Checkpointer::find() {
  int64_t step = -1;
  Status found_any = Ok{};
  if (group_.rank() == 0) {
    auto found = folder_.newest();
    if (!found) found_any = found.error();
    if (found && *found) step = (*found)->global_step;
  }
  YARD_TRY(agree(group_, found_any, "looking for checkpoints"));
  YARD_TRY(group_.broadcast(std::as_writable_bytes(std::span(&step, 1)), 0)->wait());
  if (step < 0) return std::optional<LoadedCheckpoint>();
  LoadedCheckpoint loaded{.path = output_dir_ + "/" + CheckpointFolder::key_of(step)};
  const std::string state_path = loaded.path + "/state.json";
  YARD_ASSIGN(const std::string text, read_file(state_path));
  YARD_ASSIGN(const Json json, parse_json(text, state_path));
  YARD_ASSIGN(loaded.state, run_state_from(json, recipe_, group_.size(), loaded.path));
  return std::optional<LoadedCheckpoint>(std::move(loaded));
}

Status Checkpointer::load(const LoadedCheckpoint& checkpoint, Networks& networks) {
  YARD_TRY(load_weights(networks, checkpoint.path));
  networks.set_scaling_factor(checkpoint.state.scaling_factor);
  return Ok{};
}

Status Checkpointer::restore(Trainee& trainee, const LoadedCheckpoint& checkpoint) const {
  YARD_ASSIGN(const auto optimizer,
              models::read_safetensors(checkpoint.path + "/optimizer.safetensors"));
  models::SafetensorsFile ema;
  if (recipe_.has_average()) {
    YARD_ASSIGN(ema, models::read_safetensors(checkpoint.path + "/ema.safetensors"));
  }
  return trainee.restore(optimizer.tensors, ema.tensors,
                         {checkpoint.state.optimizer_step, checkpoint.state.average_begin},
                         checkpoint.path);
}

Status Checkpointer::save(const Networks& networks, const Trainee* trainee, const RunState& state) {
  const auto start = std::chrono::steady_clock::now();
  settle();
  YARD_ASSIGN(TensorFiles copied, snapshot(networks, trainee, group_.rank() == 0));
  if (group_.rank() != 0) return Ok{};
  auto body = [folder = folder_, tensors = std::move(copied),
               json = to_json(state, recipe_, group_.size()), step = state.global_step,
               keep = recipe_.checkpoint.keep]() -> Status {
    return tensor::guard_torch("saving", [&] { return write(folder, tensors, json, step, keep); });
  };
  pending_.emplace(std::async(std::launch::async, std::move(body)), state.global_step);
  pending_->blocked_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return Ok{};
}

void Checkpointer::poll() {
  if (pending_ && pending_->outcome.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    settle();
}

Status Checkpointer::wait() {
  settle();
  return last_;
}

void Checkpointer::settle() {
  if (!pending_) return;
  last_ = pending_->outcome.get();
  const std::string key = CheckpointFolder::key_of(pending_->global_step);
  if (last_) {
    heartbeat_.tell("checkpoint", {{"global_step", pending_->global_step},
                                   {"blocked_s", pending_->blocked_s},
                                   {"path", output_dir_ + "/" + key}});
    log_info("saved {} (training stood still for {:.3f} s)", key, pending_->blocked_s);
  } else {
    log_error("ALARM: {}; training goes on, older checkpoints are intact", last_.error().message);
    heartbeat_.tell("alarm",
                    {{"code", to_string(last_.error().code)}, {"message", last_.error().message}});
  }
  pending_.reset();
}

}  // namespace yard::loop
