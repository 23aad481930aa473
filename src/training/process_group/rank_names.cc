#include "process_group/rank_names.h"

#include <fmt/format.h>

#include <unistd.h>

#include <array>
#include <charconv>
#include <set>

namespace yard::process_group {
namespace {

constexpr std::string_view kWord = "rank ";

constexpr size_t kHostNameBytes = 65;  // Linux' HOST_NAME_MAX and a zero

bool ends_a_word(std::string_view text, size_t end) {
  return end == 0 || text[end - 1] == ' ' || text[end - 1] == '[' || text[end - 1] == '(';
}

}  // namespace

Result<std::vector<std::string>> host_names(collective::Group& group) {
  std::array<std::byte, kHostNameBytes> own{};
  ::gethostname(reinterpret_cast<char*>(own.data()), own.size() - 1);
  std::vector<std::byte> all(own.size() * static_cast<size_t>(group.size()));
  YARD_TRY(group.all_gather(own, all)->wait());
  std::vector<std::string> names;
  for (size_t at = 0; at < all.size(); at += own.size())
    names.emplace_back(reinterpret_cast<const char*>(&all[at]));
  return names;
}

RankNames::RankNames(std::vector<std::string> hosts, std::vector<int64_t> global_ranks)
    : hosts_(std::move(hosts)), global_ranks_(std::move(global_ranks)) {}

std::string RankNames::more_about(size_t rank) const {
  if (rank >= hosts_.size()) return "";
  if (rank >= global_ranks_.size()) return fmt::format(" (on {})", hosts_[rank]);
  return fmt::format(" (global rank {}, on {})", global_ranks_[rank], hosts_[rank]);
}

std::string RankNames::name(int rank) const {
  return fmt::format("rank {}{}", rank, more_about(static_cast<size_t>(rank)));
}

std::string RankNames::explain(std::string_view text) const {
  std::string out;
  std::set<size_t> explained;
  size_t done = 0;
  for (size_t at = text.find(kWord); at != text.npos; at = text.find(kWord, at + kWord.size())) {
    const char* digits = text.data() + at + kWord.size();
    size_t rank = 0;
    const auto [end, error] = std::from_chars(digits, text.data() + text.size(), rank);
    if (error != std::errc() || !ends_a_word(text, at) || !explained.insert(rank).second) continue;
    const auto upto = static_cast<size_t>(end - text.data());
    out += text.substr(done, upto - done);
    out += more_about(rank);
    done = upto;
  }
  return out.append(text.substr(done));
}

}  // namespace yard::process_group
