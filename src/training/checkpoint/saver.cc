#include "checkpoint/saver.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <future>
#include <optional>

#include "base/clock.h"
#include "checkpoint/save_runner_internal.h"
#include "checkpoint/staging.h"
#include "telemetry/metric_names.h"

namespace yard::checkpoint {
namespace {

double seconds_since(Clock::Monotonic begin) {
  return std::chrono::duration<double>(Clock::real().now() - begin).count();
}

// Text that is no UTF-8 would throw when it is written.
Json as_utf8(const Json& json) {
  auto text = parse_json(json.dump(-1, ' ', false, Json::error_handler_t::replace), "metadata");
  return text ? *std::move(text) : Json::object();
}

Layout layout_of(std::span<const TensorView> tensors) {
  Layout layout;
  layout.reserve(tensors.size());
  for (const TensorView& tensor : tensors)
    layout.push_back({tensor.name, tensor.info, tensor.region});
  return layout;
}

Status check_bytes(std::span<const TensorView> tensors) {
  for (const TensorView& tensor : tensors) {
    const uint64_t needed = chunk_bytes(tensor.info, tensor.region);
    if (tensor.bytes.size() != needed)
      return Error{Code::kInvalidArgument,
                   fmt::format("tensor '{}': {} bytes given, its chunk has {}", tensor.name,
                               tensor.bytes.size(), needed)};
  }
  return Ok{};
}

}  // namespace

struct Saver::Impl {
  Impl(CheckpointStore checkpoints, Exchange& exchange, const SaverOptions& options)
      : exchange(exchange),
        options(options),
        runner(std::move(checkpoints), exchange, options),
        copier(options.copy_thread_count) {}

  bool is_busy() const {
    return pending.valid() &&
           pending.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }

  Status settle() {
    if (!pending.valid()) return Ok{};
    Status outcome = pending.get();
    count(metric::kCheckpointSaves, outcome ? 1 : 0);
    count(metric::kCheckpointFailedSaves, outcome ? 0 : 1);
    return outcome;
  }

  void count(std::string_view name, double amount) const {
    if (options.counters != nullptr && amount > 0) options.counters->counter(name).add(amount);
  }

  // What this rank writes, as far as that is known; else everything that it has.
  Status stage(std::span<const TensorView> tensors, SaveJob& job) {
    YARD_TRY(check_layout(job.layout));
    YARD_TRY(check_bytes(tensors));
    // A peer's memory is to have all of this rank, replicas too.
    const bool keeps_all = options.memory.peers != nullptr;
    const std::vector<bool>* owned = keeps_all ? nullptr : runner.owned(job.layout);
    job.has_bytes = owned != nullptr ? *owned : std::vector<bool>(tensors.size(), true);
    uint64_t size_bytes = 0;
    for (size_t i = 0; i < tensors.size(); ++i)
      if (job.has_bytes[i]) size_bytes += tensors[i].bytes.size();
    StagingBuffer& buffer = keeps_all ? options.memory.peers->next_buffer(exchange.rank()) : own;
    YARD_TRY(buffer.reserve(size_bytes));
    std::vector<CopyTask> tasks;
    std::span<std::byte> free = buffer.bytes();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const size_t chunk_size = job.has_bytes[i] ? tensors[i].bytes.size() : 0;
      job.bytes.push_back(free.first(chunk_size));
      if (chunk_size > 0) tasks.push_back({tensors[i].bytes, free.data()});
      free = free.subspan(chunk_size);
    }
    copier.copy(tasks);
    count(metric::kCheckpointCopiedBytes, static_cast<double>(size_bytes));
    return Ok{};
  }

  // `told`: the caller has heard of the error already.
  void start(SaveJob job, bool told) {
    pending = std::async(
        std::launch::async,
        [this, told, before = std::move(pending), job = std::move(job)]() mutable -> Status {
          try {
            Status outcome = before.valid() ? before.get() : Ok{};
            const auto begin = Clock::real().now();
            Status own = runner.run(job);
            count(metric::kCheckpointWriteSeconds, seconds_since(begin));
            if (outcome && !told) outcome = std::move(own);
            return outcome;
          } catch (const std::exception& error) {
            exchange.abandon(error.what());
            return Error{Code::kInternal,
                         fmt::format("saving step {}: {}", job.step, error.what())};
          }
        });
  }

  Status refuse(int64_t step) {
    const Error error{Code::kUnavailable,
                      fmt::format("step {} is not saved: another save still runs", step)};
    SaveJob job{.step = step};
    job.error = error;
    if (exchange.size() > 1) start(std::move(job), true);
    return error;
  }

  Exchange& exchange;
  const SaverOptions options;
  SaveRunner runner;
  ParallelCopier copier;
  StagingBuffer own;
  double copy_seconds = 0;
  std::future<Status> pending;  // last: its thread uses the others
};

Saver::Saver(CheckpointStore checkpoints, Exchange& exchange, const SaverOptions& options)
    : impl_(std::make_unique<Impl>(std::move(checkpoints), exchange, options)) {}

Saver::~Saver() {
  if (impl_->pending.valid()) impl_->pending.wait();
}

Status Saver::reserve(uint64_t size_bytes) {
  YARD_TRY(impl_->settle());
  if (PeerMemory* const peers = impl_->options.memory.peers)
    return peers->reserve(impl_->exchange.rank(), size_bytes);
  return impl_->own.reserve(size_bytes);
}

Status Saver::save(int64_t step, std::span<const TensorView> tensors, const SaveNotes& notes) {
  if (impl_->options.when_busy == WhenBusy::kRefuse && impl_->is_busy()) return impl_->refuse(step);
  YARD_TRY(impl_->settle());
  const auto begin = Clock::real().now();
  SaveJob job{.step = step, .layout = layout_of(tensors)};
  job.notes = {as_utf8(notes.metadata), as_utf8(notes.rank_metadata)};
  Status staged = step < 0
                      ? Status(Error{Code::kInvalidArgument, fmt::format("{} is no step", step)})
                      : impl_->stage(tensors, job);
  if (!staged) job = {.step = step, .error = staged.error()};
  impl_->start(std::move(job), !staged.has_value());
  impl_->copy_seconds = seconds_since(begin);
  impl_->count(metric::kCheckpointBlockedSeconds, impl_->copy_seconds);
  return staged;
}

Status Saver::wait() {
  return impl_->settle();
}

bool Saver::is_busy() const {
  return impl_->is_busy();
}

double Saver::copy_seconds() const {
  return impl_->copy_seconds;
}

}  // namespace yard::checkpoint
