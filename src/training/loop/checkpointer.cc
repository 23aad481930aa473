#include "loop/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "base/log.h"
#include "loop/agreement.h"
#include "loop/checkpoint_tensors.h"

namespace yard::loop {
namespace {

constexpr std::string_view kFolder = "checkpoints";

std::string name_of(const checkpoint::CheckpointStore& checkpoints, int64_t step) {
  std::string folder = checkpoints.folder_of(step);
  folder.pop_back();  // the '/'
  return folder;
}

}  // namespace

Result<std::unique_ptr<Checkpointer>> Checkpointer::create(storage::ObjectStore& store,
                                                           std::string output_dir,
                                                           const Recipe& recipe,
                                                           collective::Group& group,
                                                           HeartbeatWriter& heartbeat) {
  std::unique_ptr<Checkpointer> made(
      new Checkpointer(store, std::move(output_dir), recipe, group, heartbeat));
  YARD_TRY(made->connect());
  return made;
}

Checkpointer::Checkpointer(storage::ObjectStore& store, std::string output_dir,
                           const Recipe& recipe, collective::Group& group,
                           HeartbeatWriter& heartbeat)
    : checkpoints_(store, kFolder),
      output_dir_(std::move(output_dir)),
      recipe_(recipe),
      group_(group),
      heartbeat_(heartbeat) {}

Status Checkpointer::connect() {
  if (group_.size() == 1) {
    saving_group_ = collective::single_rank_group();
  } else {
    YARD_ASSIGN(saving_group_, group_.split(0, group_.rank()));
  }
  exchange_ = checkpoint::exchange_over(*saving_group_);
  saver_ = std::make_unique<checkpoint::Saver>(
      checkpoints_, *exchange_,
      checkpoint::SaverOptions{.retention = {.keep_last = recipe_.checkpoint.keep}});
  return Ok{};
}

Checkpointer::~Checkpointer() {
  if (!exchange_) return;
  if (pending_) (void)saver_->wait();
  exchange_->abandon("the run ended");
}

// Every byte is read: what is taken up must be what was saved.
Result<std::optional<int64_t>> Checkpointer::newest() const {
  YARD_ASSIGN(const std::vector<int64_t> steps, checkpoints_.steps());
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const auto manifest = checkpoints_.read(*step);
    // Not damaged: of another format, and it must not be trained over.
    if (!manifest && manifest.error().code == Code::kInvalidArgument) return manifest.error();
    const Status status = manifest ? checkpoints_.verify(*manifest) : Status(manifest.error());
    if (status) return std::optional(*step);
    log_warning("checkpoint passed over: {}", status.error().message);
  }
  return std::optional<int64_t>();
}

Result<std::optional<LoadedCheckpoint>> Checkpointer::find() {
  int64_t step = -1;
  Status looked = Ok{};
  if (group_.rank() == 0) {
    const auto found = newest();
    if (!found) looked = found.error();
    if (found) step = found->value_or(-1);
  }
  YARD_TRY(agree(group_, looked, "looking for checkpoints"));
  YARD_TRY(group_.broadcast(std::as_writable_bytes(std::span(&step, 1)), 0)->wait());
  if (step < 0) return std::optional<LoadedCheckpoint>();
  LoadedCheckpoint loaded{.path = output_dir_ + "/" + name_of(checkpoints_, step)};
  YARD_ASSIGN(loaded.manifest, checkpoints_.read(step));
  YARD_ASSIGN(loaded.state,
              run_state_from(loaded.manifest.metadata, recipe_, group_.size(), loaded.path));
  return std::optional<LoadedCheckpoint>(std::move(loaded));
}

Status Checkpointer::load(const LoadedCheckpoint& checkpoint, Networks& networks,
                          const std::vector<models::NamedTensor>& trained) const {
  YARD_ASSIGN(const auto targets, chunks_to_load(networks, trained, checkpoint.manifest));
  YARD_TRY(checkpoint::load(checkpoints_, checkpoint.manifest, targets));
  networks.set_scaling_factor(checkpoint.state.scaling_factor);
  return Ok{};
}

Status Checkpointer::restore(Trainee& trainee, const LoadedCheckpoint& checkpoint) const {
  const bool has_stepped = checkpoint.state.optimizer_step > 0;
  TraineeState state;
  if (has_stepped) {
    YARD_ASSIGN(state, trainee.state());
  } else {
    state.tensors = trainee.sharded_weights();
  }
  YARD_ASSIGN(const auto targets, chunks_to_load(state.tensors));
  YARD_TRY(agree(group_, checkpoint::load(checkpoints_, checkpoint.manifest, targets),
                 "loading " + checkpoint.path));
  if (!has_stepped) return trainee.weights_restored();
  return trainee.restored(state, {checkpoint.state.optimizer_step, checkpoint.state.average_begin});
}

Status Checkpointer::save(const Networks& networks, const Trainee* trainee, const RunState& state) {
  const auto start = std::chrono::steady_clock::now();
  settle();
  TraineeState trained;
  if (trainee != nullptr) {
    YARD_ASSIGN(trained, trainee->state());
  }
  YARD_ASSIGN(const auto chunks, chunks_to_save(networks, trained.tensors));
  const Json facts = to_json(state, recipe_, group_.size());
  pending_.emplace(state.global_step);
  pending_->begun = saver_->save(state.global_step, chunks, {.metadata = facts});
  pending_->blocked_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return Ok{};
}

void Checkpointer::poll() {
  if (pending_ && !saver_->is_busy()) settle();
}

Status Checkpointer::wait() {
  settle();
  return last_;
}

void Checkpointer::settle() {
  if (!pending_) return;
  last_ = saver_->wait();
  // Told already where it could not begin.
  if (!pending_->begun) last_ = pending_->begun;
  if (group_.rank() == 0) tell_saved(*pending_);
  pending_.reset();
}

void Checkpointer::tell_saved(const Pending& saved) {
  const std::string name = name_of(checkpoints_, saved.global_step);
  if (last_) {
    heartbeat_.tell("checkpoint", {{"global_step", saved.global_step},
                                   {"blocked_s", saved.blocked_s},
                                   {"path", output_dir_ + "/" + name}});
    log_info("saved {} (training stood still for {:.3f} s)", name, saved.blocked_s);
  } else {
    log_error("ALARM: {}; training goes on, older checkpoints are intact", last_.error().message);
    heartbeat_.tell("alarm",
                    {{"code", to_string(last_.error().code)}, {"message", last_.error().message}});
  }
}

}  // namespace yard::loop
