#include "checkpoint/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "storage/keys.h"

namespace yard::checkpoint {
namespace {

constexpr uint64_t kMessageBytesMax = uint64_t{1} << 30;

class GroupExchange final : public Exchange {
 public:
  explicit GroupExchange(collective::Group& group) : group_(group) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  // Operations move equal sizes: first the sizes, then everything padded to the largest.
  Result<std::vector<std::string>> all_gather(std::string_view message) override {
    if (size() == 1) return std::vector<std::string>{std::string(message)};
    YARD_CHECK(message.size() <= kMessageBytesMax);
    const auto count = static_cast<size_t>(size());
    const uint64_t own_bytes = message.size();
    std::vector<uint64_t> sizes(count);
    YARD_TRY(group_
                 .all_gather(std::as_bytes(std::span(&own_bytes, 1)),
                             std::as_writable_bytes(std::span(sizes)))
                 ->wait());
    const uint64_t widest = *std::ranges::max_element(sizes);
    if (widest > kMessageBytesMax)
      return Error{Code::kCorrupt, fmt::format("a rank announces {} bytes", widest)};
    std::string padded(message);
    padded.resize(widest);
    std::string all(widest * count, '\0');
    if (widest > 0)
      YARD_TRY(
          group_
              .all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)))
              ->wait());
    std::vector<std::string> messages;
    for (size_t i = 0; i < count; ++i) messages.push_back(all.substr(i * widest, sizes[i]));
    return messages;
  }

  void abandon(std::string_view reason) override { group_.abort(reason); }

 private:
  collective::Group& group_;
};

class StoreExchange final : public Exchange {
 public:
  StoreExchange(storage::ObjectStore& store, std::string folder, StoreExchangeOptions options,
                Clock& clock)
      : store_(store), folder_(std::move(folder)), options_(std::move(options)), clock_(clock) {}

  ~StoreExchange() override {
    if (size() == 1) remove_round(round_);
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.world_size; }

  Result<std::vector<std::string>> all_gather(std::string_view message) override {
    if (error_) return *error_;
    auto messages = gather(message);
    if (!messages) error_ = messages.error();
    return messages;
  }

  void abandon(std::string_view reason) override {
    if (!error_) error_ = {Code::kUnavailable, "gave up: " + std::string(reason)};
  }

 private:
  std::string key_of(uint64_t round, int rank) const {
    return fmt::format("{}{:08}/{:05}", folder_, round, rank);
  }

  Result<std::vector<std::string>> gather(std::string_view message) {
    ++round_;
    YARD_TRY(storage::put_text(store_, key_of(round_, rank()), message, {.if_absent = true}));
    std::vector<std::string> messages;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) {
        messages.emplace_back(message);
        continue;
      }
      YARD_ASSIGN(messages.emplace_back(), await(peer));
    }
    // Whoever has put a message of this round has read all of the one before.
    if (rank() == 0 && round_ > 1) remove_round(round_ - 1);
    return messages;
  }

  Result<std::string> await(int peer) {
    const std::string key = key_of(round_, peer);
    const Clock::Monotonic end = clock_.now() + options_.timeout;
    auto pause = options_.poll_first;
    for (;;) {
      auto text = storage::get_all(store_, key, kMessageBytesMax);
      if (text || text.error().code != Code::kNotFound) return text;
      if (clock_.now() >= end)
        return Error{Code::kDeadlineExceeded,
                     fmt::format("rank {} did not come within {} s ({}/{})", peer,
                                 std::chrono::duration<double>(options_.timeout).count(),
                                 store_.url(), key)};
      if (!clock_.sleep_for(pause, options_.stop))
        return Error{Code::kCancelled, fmt::format("stopped waiting for rank {}", peer)};
      pause = std::min(2 * pause, options_.poll_max);
    }
  }

  void remove_round(uint64_t round) {
    std::vector<std::string> keys;
    for (int peer = 0; peer < size(); ++peer) keys.push_back(key_of(round, peer));
    if (Status removed = store_.remove_all(keys); !removed)
      log_warning("messages of a save stay behind: {}", removed.error().message);
  }

  storage::ObjectStore& store_;
  const std::string folder_;
  const StoreExchangeOptions options_;
  Clock& clock_;
  uint64_t round_ = 0;
  std::optional<Error> error_;
};

}  // namespace

std::unique_ptr<Exchange> exchange_over(collective::Group& group) {
  return std::make_unique<GroupExchange>(group);
}

Result<std::unique_ptr<Exchange>> exchange_over(storage::ObjectStore& store,
                                                std::string_view prefix,
                                                const StoreExchangeOptions& options, Clock& clock) {
  YARD_CHECK(options.world_size > 0 && options.rank >= 0 && options.rank < options.world_size);
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  const std::string folder = fmt::format("{}{}exchange-{}-{}/", prefix, prefix.empty() ? "" : "/",
                                         options.run_id, options.generation);
  if (options.run_id.empty() || options.run_id.find('/') != std::string::npos)
    return Error{Code::kInvalidArgument, fmt::format("'{}' is no run id", options.run_id)};
  YARD_TRY(storage::check_key(folder + "00000000/00000"));
  return std::unique_ptr<Exchange>(std::make_unique<StoreExchange>(store, folder, options, clock));
}

}  // namespace yard::checkpoint
