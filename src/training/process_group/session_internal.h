// Session: a Group and what outlives it: the threads that end its operations. Shared by a backend
// and the works that it gave out.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collective/collective.h"
#include "process_group/issued_operation.h"

namespace yard::process_group {

// One call of torch.
struct Call {
  c10d::OpType type;
  const char* title;  // for torch's profiler: "yard:all_reduce"
  std::vector<at::Tensor> inputs;
  std::optional<std::chrono::milliseconds> timeout;  // where it is not the group's own
  std::shared_ptr<int> source;                       // of a receive from any rank
};

// Thread-safe. Throws c10::DistBackendError.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::unique_ptr<collective::Group> group, std::string label, RankNames names);
  ~Session() { close(); }

  using Start = std::function<void(collective::Group&, Parts&)>;
  // `start` begins the operation's works. The call's title names it in errors.
  c10::intrusive_ptr<c10d::Work> issue(Call call, Parts parts, const Start& start);

  // Memory that the ranks of a host share. All ranks call it, with the same size.
  std::shared_ptr<collective::SharedBuffer> allocate(size_t size_bytes);

  // What is issued in between becomes one work.
  void start_coalescing();
  c10::intrusive_ptr<c10d::Work> end_coalescing();

  // Ends the group: its pending operations fail here, and elsewhere where they need us.
  void close();
  // Makes the operations of all ranks fail.
  void abort(const std::string& reason);

  // Fails what is pending here. The group of those that live.
  std::unique_ptr<collective::Group> shrink(const collective::ShrinkOptions& options);

  std::vector<collective::FlightRecord> flight();

  uint64_t issued_count() const { return issued_count_.load(std::memory_order_relaxed); }
  const std::shared_ptr<Speaker>& speaker() const { return speaker_; }
  Settler& settler_of(c10d::OpType type);
  [[noreturn]] void raise(const std::string& message) const;

 private:
  std::shared_ptr<collective::Group> group();

  const std::shared_ptr<Speaker> speaker_ = std::make_shared<Speaker>();
  std::atomic<uint64_t> issued_count_ = 0;
  Settler ordered_{Settler::Order::kIssued};
  Settler messages_{Settler::Order::kAny};

  std::mutex issuing_;  // a Group is given one operation at a time
  bool is_coalescing_ = false;
  std::vector<std::shared_ptr<IssuedOperation>> coalesced_;
  std::mutex mutex_;
  std::shared_ptr<collective::Group> group_;  // null once closed
};

}  // namespace yard::process_group
