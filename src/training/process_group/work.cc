#include <fmt/format.h>

#include <algorithm>

#include "process_group/work_internal.h"

namespace yard::process_group {

using std::chrono::milliseconds;

YardWork::YardWork(std::shared_ptr<Session> session, Call call, int rank,
                   std::shared_ptr<IssuedOperation> operation)
    : Work(rank, call.type, call.title, call.inputs),
      session_(std::move(session)),
      call_(std::move(call)),
      operation_(std::move(operation)),
      sequence_(session_->issued_count()),
      deadline_(call_.timeout ? std::optional(Clock::now() + *call_.timeout) : std::nullopt) {
  if (recordFunctionEndCallback_)
    operation_->at_end(std::exchange(recordFunctionEndCallback_, nullptr));
}

YardWork::~YardWork() {
  if (!operation_->settled()) settle_elsewhere();
}

void YardWork::settle_elsewhere() {
  std::call_once(handed_over_, [this] { session_->settler_of(call_.type).add(operation_); });
}

bool YardWork::isCompleted() {
  if (!operation_->ready()) return false;
  operation_->settle();
  return true;
}

bool YardWork::isSuccess() const {
  return operation_->settled() && !operation_->error();
}

std::exception_ptr YardWork::exception() const {
  return operation_->error();
}

int YardWork::sourceRank() const {
  if (!call_.source) return Work::sourceRank();
  return *call_.source;
}

std::optional<milliseconds> YardWork::patience(milliseconds timeout) const {
  std::optional<milliseconds> limit;
  if (timeout != kNoTimeout) limit = timeout;
  if (!deadline_) return limit;
  const auto left = std::chrono::ceil<milliseconds>(*deadline_ - Clock::now());
  return std::max(milliseconds(0), std::min(left, limit.value_or(left)));
}

void YardWork::wait_at_most(milliseconds limit) {
  settle_elsewhere();
  if (operation_->wait_settled(limit)) return;
  const char* name = call_.title + std::string_view("yard:").size();
  if (!deadline_ || Clock::now() < *deadline_)
    session_->raise(fmt::format("{} has not ended within {} ms", name, limit.count()));
  session_->abort(fmt::format("{} took longer than {} ms", name, call_.timeout->count()));
  operation_->settle();
}

bool YardWork::wait(milliseconds timeout) {
  if (const auto limit = patience(timeout))
    wait_at_most(*limit);
  else
    operation_->settle();
  if (auto error = operation_->error()) std::rethrow_exception(error);
  return true;
}

void YardWork::abort() {
  session_->abort(fmt::format("{} was aborted", call_.title + std::string_view("yard:").size()));
}

c10::intrusive_ptr<c10::ivalue::Future> YardWork::getFuture() {
  auto future = operation_->future();
  if (!operation_->settled()) settle_elsewhere();
  return future;
}

}  // namespace yard::process_group
