// YardWork: what torch gets for an operation that it issued.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <memory>
#include <optional>

#include "process_group/session_internal.h"

namespace yard::process_group {

// Thread-safe. Errors are c10::DistBackendError. One that is dropped early goes on by itself.
class YardWork final : public c10d::Work {
 public:
  YardWork(std::shared_ptr<Session> session, Call call, int rank,
           std::shared_ptr<IssuedOperation> operation);
  ~YardWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return operation_->outputs(); }
  void synchronize() override { wait(kNoTimeout); }
  // A time-out of the operation ends the group; one given here only the waiting.
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  using Clock = std::chrono::steady_clock;
  // How long to wait at most; nullopt: until the group gives up.
  std::optional<std::chrono::milliseconds> patience(std::chrono::milliseconds timeout) const;
  void settle_elsewhere();
  void wait_at_most(std::chrono::milliseconds limit);

  const std::shared_ptr<Session> session_;
  const Call call_;
  const std::shared_ptr<IssuedOperation> operation_;
  const uint64_t sequence_;
  const std::optional<Clock::time_point> deadline_;
  std::once_flag handed_over_;
};

}  // namespace yard::process_group
