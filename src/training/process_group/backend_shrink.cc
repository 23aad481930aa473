// A group that goes on without those who are lost.
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

#include "base/ids.h"
#include "process_group/backend.h"
#include "process_group/rank_names.h"
#include "process_group/session_internal.h"

namespace yard::process_group {
namespace {

constexpr size_t kIdLength = 32;

// What the ranks of the new group have to know of each other.
struct Agreed {
  std::vector<int64_t> old_ranks;  // by new rank
  std::string id;
};

Result<Agreed> agree(collective::Group& group, int64_t old_rank) {
  Agreed agreed;
  agreed.old_ranks.resize(static_cast<size_t>(group.size()));
  YARD_TRY(group
               .all_gather(std::as_bytes(std::span(&old_rank, 1)),
                           std::as_writable_bytes(std::span(agreed.old_ranks)))
               ->wait());
  agreed.id = random_name(kIdLength);
  YARD_TRY(group.broadcast(std::as_writable_bytes(std::span(agreed.id)), 0)->wait());
  return agreed;
}

}  // namespace

YardBackend::Shrunk YardBackend::shrink_to_survivors(const collective::ShrinkOptions& options) {
  std::unique_ptr<collective::Group> group = session_->shrink(options);
  const auto or_raise = [&](auto result) {
    if (!result) session_->raise("in the smaller group: " + result.error().message);
    return *std::move(result);
  };
  Agreed agreed = or_raise(agree(*group, rank_));
  std::vector<std::string> hosts = or_raise(host_names(*group));
  BackendOptions smaller = place_;
  smaller.place.rank = group->rank();
  smaller.place.world_size = group->size();
  smaller.global_ranks.clear();
  for (const int64_t rank : agreed.old_ranks)
    if (!place_.global_ranks.empty())
      smaller.global_ranks.push_back(place_.global_ranks[static_cast<size_t>(rank)]);
  return {
      .backend = c10::make_intrusive<YardBackend>(
          Connection{std::move(group), std::move(agreed.id)}, store_, std::move(hosts), smaller),
      .ranks = std::move(agreed.old_ranks)};
}

c10::intrusive_ptr<c10d::Backend> YardBackend::shrink(const std::vector<int64_t>& ranks_to_exclude,
                                                      int,
                                                      const c10::intrusive_ptr<Options>& override) {
  TORCH_CHECK_VALUE(!override, "the backend yard has no pg_options");
  collective::ShrinkOptions options{.without = {}, .timeout = timeout_.load()};
  for (const int64_t rank : ranks_to_exclude) {
    TORCH_CHECK_VALUE(0 <= rank && rank < size_, "rank ", rank, " of a group of ", size_);
    options.without.push_back(static_cast<int>(rank));
  }
  Shrunk shrunk = shrink_to_survivors(options);
  // torch numbers the ranks by the list that it was given.
  if (shrunk.ranks.size() + ranks_to_exclude.size() != static_cast<size_t>(size_))
    session_->raise(
        fmt::format("shrinking the group: ranks {} are left, although only {} were to go: "
                    "trainyard.distributed.shrink() finds them by itself",
                    fmt::join(shrunk.ranks, ", "), fmt::join(ranks_to_exclude, ", ")));
  return shrunk.backend;
}

}  // namespace yard::process_group
