#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "process_group/session_internal.h"
#include "process_group/work_internal.h"

namespace yard::process_group {

Session::Session(std::unique_ptr<collective::Group> group, std::string label, RankNames names)
    : group_(std::move(group)) {
  speaker_->label = std::move(label);
  speaker_->names = std::move(names);
}

void Session::raise(const std::string& message) const {
  throw c10::DistBackendError(fmt::format("{} {}", speaker_->label, message), nullptr);
}

std::shared_ptr<collective::Group> Session::group() {
  std::lock_guard lock(mutex_);
  if (!group_) raise("the process group was destroyed");
  return group_;
}

Settler& Session::settler_of(c10d::OpType type) {
  // Messages end in any order: one that never comes must not hold up the others' futures.
  return c10d::isP2POp(type) || type == c10d::OpType::COALESCED ? messages_ : ordered_;
}

c10::intrusive_ptr<c10d::Work> Session::issue(Call call, Parts parts, const Start& start) {
  const std::string_view title = call.title;
  parts.name = title.substr(title.find(':') + 1);
  parts.speaker = speaker_;
  std::lock_guard lock(issuing_);
  const auto group = this->group();
  issued_count_.fetch_add(1, std::memory_order_relaxed);
  start(*group, parts);
  auto operation = std::make_shared<IssuedOperation>(std::move(parts));
  if (is_coalescing_) coalesced_.push_back(operation);
  return c10::make_intrusive<YardWork>(shared_from_this(), std::move(call), group->rank(),
                                       std::move(operation));
}

std::shared_ptr<collective::SharedBuffer> Session::allocate(size_t size_bytes) {
  std::lock_guard lock(issuing_);
  auto buffer = group()->allocate(size_bytes);
  if (!buffer)
    raise("allocating shared memory: " + speaker_->names.explain(buffer.error().message));
  return *std::move(buffer);
}

std::unique_ptr<collective::Group> Session::shrink(const collective::ShrinkOptions& options) {
  std::lock_guard lock(issuing_);
  auto smaller = group()->shrink(options);
  if (!smaller) raise("shrinking the group: " + speaker_->names.explain(smaller.error().message));
  return *std::move(smaller);
}

void Session::start_coalescing() {
  std::lock_guard lock(issuing_);
  if (is_coalescing_) raise("operations are already being coalesced");
  is_coalescing_ = true;
}

c10::intrusive_ptr<c10d::Work> Session::end_coalescing() {
  std::lock_guard lock(issuing_);
  if (!is_coalescing_) raise("no operations are being coalesced");
  is_coalescing_ = false;
  Parts parts{.name = "coalesced", .speaker = speaker_};
  parts.children = std::exchange(coalesced_, {});
  for (const auto& child : parts.children)
    for (const at::Tensor& output : child->outputs()) parts.outputs.push_back(output);
  return c10::make_intrusive<YardWork>(
      shared_from_this(), Call{.type = c10d::OpType::COALESCED, .title = "yard:coalesced"},
      group()->rank(), std::make_shared<IssuedOperation>(std::move(parts)));
}

void Session::close() {
  std::shared_ptr<collective::Group> group;
  {
    std::lock_guard lock(mutex_);
    group = std::exchange(group_, nullptr);
  }
  group = nullptr;
  ordered_.close();
  messages_.close();
}

std::vector<collective::FlightRecord> Session::flight() {
  std::shared_ptr<collective::Group> group;
  {
    std::lock_guard lock(mutex_);
    group = group_;
  }
  return group ? group->flight() : std::vector<collective::FlightRecord>();
}

void Session::abort(const std::string& reason) {
  std::shared_ptr<collective::Group> group;
  {
    std::lock_guard lock(mutex_);
    group = group_;
  }
  if (group) group->abort(reason);
}

}  // namespace yard::process_group
