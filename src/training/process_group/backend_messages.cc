// The operations of YardBackend between two ranks, and its barriers.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "process_group/arguments_internal.h"
#include "process_group/backend.h"
#include "process_group/session_internal.h"

namespace yard::process_group {
namespace {

using c10d::OpType;
using collective::Group;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPollMin{1};
constexpr milliseconds kPollMax{50};
constexpr char kPassed[] = "passed";
// How much longer than rank 0 the others wait for its word: it may begin to wait after them.
constexpr int kPatienceFactor = 2;

// Whether the key came in time. By looking: a store's own wait may not be interrupted.
bool await_key(c10d::Store& store, const std::string& key, Clock::time_point deadline) {
  milliseconds pause = kPollMin;
  while (!store.check({key})) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kPollMax);
  }
  return true;
}

uint64_t tag_of(int tag) {
  TORCH_CHECK_VALUE(tag >= 0, "a message's tag is not negative, as ", tag, " is");
  return static_cast<uint64_t>(tag);
}

}  // namespace

YardBackend::Work YardBackend::send(Tensors& tensors, int to, int tag) {
  only(tensors, "send");
  check(tensors, "send");
  check_root(to, size_, "send");
  const uint64_t number = tag_of(tag);
  const auto piece = piece_of(tensors, Content::kKept);
  return session_->issue(call(OpType::SEND, "yard:send", tensors),
                         {.finish = [piece] {}, .outputs = tensors},
                         [&](Group& group, Parts& parts) {
                           parts.works.push_back(group.send(piece->bytes(), to, number));
                         });
}

YardBackend::Work YardBackend::recv(Tensors& tensors, int from, int tag) {
  check_root(from, size_, "recv");
  return receive(tensors, from, tag);
}

YardBackend::Work YardBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, collective::kAnyRank, tag);
}

YardBackend::Work YardBackend::receive(Tensors& tensors, int from, int tag) {
  only(tensors, "recv");
  check(tensors, "recv");
  const uint64_t number = tag_of(tag);
  const auto piece = piece_of(tensors, Content::kUnset);
  const auto source = std::make_shared<int>(from);
  Call call = this->call(from == collective::kAnyRank ? OpType::RECVANYSOURCE : OpType::RECV,
                         "yard:recv", tensors);
  call.source = source;
  return session_->issue(
      std::move(call), {.finish = [piece, source] { piece->spread(); }, .outputs = tensors},
      [&](Group& group, Parts& parts) {
        parts.works.push_back(group.receive(piece->bytes(), from, number, source.get()));
      });
}

YardBackend::Work YardBackend::barrier(const c10d::BarrierOptions& options) {
  return session_->issue(
      call(OpType::BARRIER, "yard:barrier", {}, options.timeout), {},
      [](Group& group, Parts& parts) { parts.works.push_back(group.barrier()); });
}

// The ranks that did not come in time, the first of them alone where that is enough.
std::vector<int> YardBackend::await_ranks(const std::string& key, milliseconds timeout,
                                          bool wait_all_ranks) {
  const auto deadline = Clock::now() + timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < size_; ++rank) {
    if (await_key(*store_, fmt::format("{}/{}", key, rank), deadline)) continue;
    missing.push_back(rank);
    if (!wait_all_ranks) break;
  }
  return missing;
}

void YardBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds timeout = options.timeout.count() > 0 ? options.timeout : timeout_.load();
  const std::string key =
      fmt::format("yard/barrier/{}/{}", connection_id_, monitored_count_.fetch_add(1));
  const std::string word_key = key + "/word";
  if (rank_ != 0) {
    store_->set(fmt::format("{}/{}", key, rank_), std::string("here"));
    if (!await_key(*store_, word_key, Clock::now() + timeout * kPatienceFactor))
      session_->raise(fmt::format("monitored_barrier: {} has not come within {} ms", names_.name(0),
                                  (timeout * kPatienceFactor).count()));
    if (const std::string word = store_->get_to_str(word_key); word != kPassed)
      session_->raise(word);
    return;
  }
  const std::vector<int> missing = await_ranks(key, timeout, wait_all_ranks);
  std::string word = kPassed;
  if (!missing.empty()) {
    word = "monitored_barrier:";
    for (const int rank : missing) word += fmt::format(" {},", names_.name(rank));
    word.back() = ' ';
    word += fmt::format("not there after {} ms", timeout.count());
  }
  store_->set(word_key, word);
  if (!missing.empty()) session_->raise(word);
}

}  // namespace yard::process_group
