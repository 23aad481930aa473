#include "mount/listing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "storage/request_deadline.h"
#include "telemetry/metric_names.h"

namespace yard::mount {
namespace {

constexpr uint32_t kPageEntries = 1000;
// One name is asked for by a page of its own, up to this many in a while; then its directory's
// entries from there on, which answer for its neighbours, too.
constexpr int kSinglesBeforePaging = 4;
constexpr uint32_t kSingleEntries = 3;
constexpr size_t kSinglesMax = 10'000;
constexpr size_t kDirectoriesMax = 10'000;
// Stretches of a directory whose order among each other is not known lie this far apart.
constexpr uint64_t kNumberGap = uint64_t{1} << 40;

std::string sort_key(const Entry& entry) {
  return entry.is_directory ? entry.name + "/" : entry.name;
}

bool is_path_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('\0') == name.npos;
}

Entry file_entry(const storage::ObjectInfo& info, size_t directory_size) {
  return {.name = info.key.substr(directory_size),
          .size_bytes = info.size_bytes,
          .etag = info.etag,
          .modified = info.modified};
}

// The greatest key that is smaller than all that begin with `key`, as far as keys are used; none
// where its last character has no plain predecessor.
std::optional<std::string> key_before(std::string_view key) {
  const char last = key.empty() ? '\0' : key.back();
  if (last <= ' ' || last == 0x7f || last - 1 == '/') return std::nullopt;
  std::string before(key.substr(0, key.size() - 1));
  before += static_cast<char>(last - 1);
  return before + "\xF4\x8F\xBF\xBF";
}

}  // namespace

Listing::Listing(storage::ObjectStore& store, storage::StoreWait* wait, const KeyShare* share,
                 const ListingOptions& options, CounterRegistry& counters, Clock& clock)
    : store_(store),
      wait_(wait),
      share_(share),
      options_(options),
      clock_(clock),
      request_count_(counters.counter(metric::kMountListRequests)) {}

Result<storage::ListPage> Listing::list(const storage::ListRequest& request) {
  const Clock::Monotonic since = clock_.now();
  const storage::RequestDeadline deadline(wait_ != nullptr ? wait_->end(since)
                                                           : Clock::Monotonic::max());
  for (int attempt = 0;; ++attempt) {
    request_count_.add(1);
    auto page = store_.list(request);
    if (page && wait_ != nullptr) wait_->note_answer();
    if (page || wait_ == nullptr || !wait_->wait(page.error(), since, attempt)) return page;
  }
}

// ---- pages

Listing::PagePointer Listing::cached_page(std::string_view directory,
                                          std::string_view start_after) {
  const std::lock_guard lock(mutex_);
  const auto found = directories_.find(directory);
  if (found == directories_.end()) return nullptr;
  const auto kept = found->second.pages.find(start_after);
  if (kept == found->second.pages.end() || kept->second.page->expires <= clock_.now())
    return nullptr;
  recent_.splice(recent_.begin(), recent_, kept->second.recent);
  return kept->second.page;
}

Result<Listing::PagePointer> Listing::page(const std::string& directory,
                                           const PagePointer& before) {
  YARD_CHECK(!before || !before->next_start_after.empty());
  if (!before) return shared_fetch(directory, "", {});
  return shared_fetch(directory, before->next_start_after, before->open_names);
}

// Of many who want the same page one asks.
Result<Listing::PagePointer> Listing::shared_fetch(const std::string& directory,
                                                   const std::string& start_after,
                                                   const std::vector<std::string>& open_names) {
  const std::pair key(directory, start_after);
  for (;;) {
    if (PagePointer page = cached_page(directory, start_after)) return page;
    std::unique_lock lock(mutex_);
    if (in_flight_.insert(key).second) break;
    fetched_.wait(lock, [&] { return !in_flight_.contains(key); });
  }
  auto page = fetch_page(directory, start_after, open_names);
  if (page) keep(directory, *page);
  const std::lock_guard lock(mutex_);
  in_flight_.erase(key);
  fetched_.notify_all();
  return page;
}

Result<Listing::PagePointer> Listing::fetch_page(const std::string& directory,
                                                 const std::string& start_after,
                                                 std::vector<std::string> open_names) {
  YARD_ASSIGN(storage::ListPage listed, list({.prefix = directory,
                                              .start_after = start_after,
                                              .delimiter = "/",
                                              .object_count_max = kPageEntries}));
  auto page = std::make_shared<ListingPage>();
  page->start_after = start_after;
  page->next_start_after = std::move(listed.next_start_after);
  page->entries.reserve(listed.objects.size() + listed.common_prefixes.size());
  auto object = listed.objects.begin();
  auto prefix = listed.common_prefixes.begin();
  const auto close_names = [&](std::string_view name) {
    while (!open_names.empty() && !name.starts_with(open_names.back())) open_names.pop_back();
  };
  while (object != listed.objects.end() || prefix != listed.common_prefixes.end()) {
    const bool is_object = prefix == listed.common_prefixes.end() ||
                           (object != listed.objects.end() && object->key < *prefix);
    Entry entry;
    if (is_object) {
      entry = file_entry(*object++, directory.size());
      if (entry.name.empty()) continue;  // the directory's own marker
    } else {
      entry = {.name = prefix->substr(directory.size()), .is_directory = true};
      entry.name.pop_back();
      ++prefix;
    }
    close_names(entry.name);
    if (entry.is_directory && !open_names.empty() && open_names.back() == entry.name) continue;
    if (!may_show(entry, directory)) continue;
    if (!entry.is_directory) open_names.push_back(entry.name);
    page->entries.push_back(std::move(entry));
  }
  page->open_names = std::move(open_names);
  page->expires = clock_.now() + options_.ttl;
  return PagePointer(page);
}

bool Listing::may_show(const Entry& entry, std::string_view directory) {
  if (!is_path_name(entry.name)) {
    if (!has_warned_.exchange(true))
      log_warning("{}/{}: holds keys that no path can name, as '{}'; they are not shown",
                  store_.url(), directory, entry.name);
    return false;
  }
  if (share_ == nullptr) return true;
  const std::string key = fmt::format("{}{}", directory, sort_key(entry));
  return entry.is_directory ? share_->has_folder(key) : share_->has_object(key);
}

void Listing::keep(const std::string& directory, PagePointer page) {
  const std::lock_guard lock(mutex_);
  if (directories_.size() >= kDirectoriesMax && !directories_.contains(directory))
    std::erase_if(directories_, [](const auto& each) { return each.second.pages.empty(); });
  Directory& of = directories_[directory];
  uint64_t number = page->start_after.empty() ? 0 : kNumberGap + key_hash(page->start_after) / 2;
  if (const auto old = of.pages.find(page->start_after); old != of.pages.end()) {
    number = old->second.first_number;
    drop(of, old);
  } else if (const auto next = of.pages.lower_bound(page->start_after); next != of.pages.begin()) {
    const Kept& before = std::prev(next)->second;
    if (before.page->next_start_after == page->start_after)
      number = before.first_number + before.page->entries.size();
  }
  entry_count_ += page->entries.size() + 1;
  recent_.emplace_front(directory, page->start_after);
  const std::string start_after = page->start_after;
  of.pages.emplace(start_after, Kept{std::move(page), number, recent_.begin()});
  while (entry_count_ > options_.entry_count_max && recent_.size() > 1) {
    Directory& oldest = directories_.find(recent_.back().first)->second;
    drop(oldest, oldest.pages.find(recent_.back().second));
  }
}

void Listing::drop(Directory& directory, Pages::iterator page) {
  entry_count_ -= page->second.page->entries.size() + 1;
  recent_.erase(page->second.recent);
  directory.pages.erase(page);
}

// ---- names

// What the kept pages say of the entry that sorts as `sort_key`.
Listing::Answer Listing::look_up(std::string_view directory, std::string_view name,
                                 std::string_view sort_key) {
  const auto found = directories_.find(directory);
  if (found == directories_.end()) return {};
  Pages& pages = found->second.pages;
  const std::string key = fmt::format("{}{}", directory, sort_key);
  auto after = pages.lower_bound(key);  // the first page that begins behind it
  if (after == pages.begin()) return {};
  Kept& kept = std::prev(after)->second;
  const ListingPage& page = *kept.page;
  if (page.expires <= clock_.now()) return {};
  if (!page.next_start_after.empty() && key > page.next_start_after) return {};
  const auto entry = std::ranges::lower_bound(page.entries, sort_key, {}, mount::sort_key);
  if (entry == page.entries.end() || entry->name != name || mount::sort_key(*entry) != sort_key)
    return {.is_known = true, .kept = &kept};
  recent_.splice(recent_.begin(), recent_, kept.recent);
  return {.is_known = true, .entry = &*entry, .kept = &kept};
}

std::optional<Listing::Found> Listing::cached(std::string_view directory, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const Answer file = look_up(directory, name, name);
  if (file.entry != nullptr) return Found{*file.entry, file.kept->page->expires};
  const Answer folder = look_up(directory, name, std::string(name) + "/");
  if (file.is_known && folder.entry != nullptr)
    return Found{*folder.entry, folder.kept->page->expires};
  if (file.is_known && folder.is_known)
    return Found{std::nullopt, std::min(file.kept->page->expires, folder.kept->page->expires)};
  const auto single = singles_.find(fmt::format("{}{}", directory, name));
  if (single == singles_.end() || single->second.expires <= clock_.now()) return std::nullopt;
  return single->second;
}

// Whether so many names of the directory were asked for one by one that a page costs less.
bool Listing::should_page(const std::string& directory) {
  const std::lock_guard lock(mutex_);
  Directory& of = directories_[directory];
  if (of.single_since + options_.ttl <= clock_.now()) {
    of.single_since = clock_.now();
    of.single_count = 0;
  }
  return ++of.single_count > kSinglesBeforePaging;
}

Result<Listing::Found> Listing::find(const std::string& directory, const std::string& name) {
  if (auto found = cached(directory, name)) return *std::move(found);
  if (!is_path_name(name)) return Found{std::nullopt, clock_.now()};
  if (should_page(directory)) {
    if (const auto before = key_before(directory + name)) {
      YARD_TRY(shared_fetch(directory, *before, {}));
      if (auto found = cached(directory, name)) return *std::move(found);
    }
  }
  YARD_ASSIGN(Found found, find_single(directory, name));
  const std::lock_guard lock(mutex_);
  if (singles_.size() >= kSinglesMax) singles_.clear();
  singles_.insert_or_assign(directory + name, found);
  return found;
}

Result<Listing::Found> Listing::find_single(const std::string& directory, const std::string& name) {
  const std::string key = directory + name;
  Found found{.expires = clock_.now() + options_.ttl};
  YARD_ASSIGN(storage::ListPage page,
              list({.prefix = key, .delimiter = "/", .object_count_max = kSingleEntries}));
  if (!page.objects.empty() && page.objects.front().key == key) {
    found.entry = file_entry(page.objects.front(), directory.size());
  } else {
    const std::string as_folder = key + "/";
    bool is_folder =
        std::ranges::find(page.common_prefixes, as_folder) != page.common_prefixes.end();
    if (!is_folder && !page.next_start_after.empty() && page.next_start_after < as_folder) {
      // Names between "name" and "name/", as "name-2", fill the page.
      YARD_ASSIGN(page, list({.prefix = as_folder, .object_count_max = 1}));
      is_folder = !page.objects.empty();
    }
    if (is_folder) found.entry = Entry{.name = name, .is_directory = true};
  }
  if (found.entry && !may_show(*found.entry, directory)) found.entry.reset();
  return found;
}

std::optional<Listing::Position> Listing::position(std::string_view directory,
                                                   std::string_view name) {
  const std::lock_guard lock(mutex_);
  const Answer file = look_up(directory, name, name);
  if (file.entry == nullptr) return std::nullopt;
  const auto index = static_cast<size_t>(file.entry - file.kept->page->entries.data());
  return Position{file.kept->page, index, file.kept->first_number + index};
}

void Listing::forget(std::string_view directory, std::string_view name) {
  const std::lock_guard lock(mutex_);
  singles_.erase(fmt::format("{}{}", directory, name));
  const Answer file = look_up(directory, name, name);
  if (file.kept == nullptr) return;
  Directory& of = directories_.find(directory)->second;
  drop(of, of.pages.find(file.kept->page->start_after));
}

}  // namespace yard::mount
