// Listing: the folders of a store as directories, from pages of ObjectStore::list() that are kept
// for a while. A directory of any length is never held whole.
//
// Names: an object "dir/name" is the file `name` in `dir`, and "dir/name/..." makes it a directory.
// Where both are there the file hides the directory. Keys that no path can name (an empty part, "."
// or "..", NUL) are left out, with one warning for the mount. An object
// "dir/" makes an empty directory visible and is not seen itself.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "mount/key_share.h"
#include "storage/object_store.h"
#include "storage/store_wait.h"
#include "telemetry/counters.h"

namespace yard::mount {

struct Entry {
  std::string name;
  bool is_directory = false;
  uint64_t size_bytes = 0;
  std::string etag;
  std::chrono::system_clock::time_point modified{};
};

// A stretch of a directory. Immutable once made.
struct ListingPage {
  std::string start_after;       // a key; empty at the begin of the directory
  std::string next_start_after;  // empty at the end
  std::vector<Entry> entries;    // in byte order of the keys, as "name" or "name/"
  // Files whose names the keys behind this page still begin with: they hide such a directory.
  std::vector<std::string> open_names;
  Clock::Monotonic expires{};
};

struct ListingOptions {
  std::chrono::milliseconds ttl{60'000};
  uint64_t entry_count_max = 200'000;  // of the pages kept; some 30 MiB
};

// Thread-safe. Methods that say so ask the store and block; the others never do.
class Listing {
 public:
  // All but `options` outlive it. share: null: everything; wait: null: an error is told at once.
  Listing(storage::ObjectStore& store, storage::StoreWait* wait, const KeyShare* share,
          const ListingOptions& options, CounterRegistry& counters, Clock& clock = Clock::real());

  // Of a directory's key: "" or "a/b/".
  using PagePointer = std::shared_ptr<const ListingPage>;
  PagePointer cached_page(std::string_view directory, std::string_view start_after);
  // The page behind `before`, or the first one when that is null. Blocks.
  Result<PagePointer> page(const std::string& directory, const PagePointer& before);

  struct Found {
    std::optional<Entry> entry;  // none: there is no such file
    Clock::Monotonic expires{};
  };
  // No value: not known without asking.
  std::optional<Found> cached(std::string_view directory, std::string_view name);
  // Blocks.
  Result<Found> find(const std::string& directory, const std::string& name);

  // Where a file is in what is kept of its directory; entries behind it follow by next().
  struct Position {
    PagePointer page;
    size_t index = 0;
    uint64_t number = 0;  // counted over the directory's pages as they were asked for
  };
  std::optional<Position> position(std::string_view directory, std::string_view name);

  // What is known of that name is not true any more.
  void forget(std::string_view directory, std::string_view name);

 private:
  struct Kept {
    PagePointer page;
    uint64_t first_number = 0;
    std::list<std::pair<std::string, std::string>>::iterator recent;
  };
  using Pages = std::map<std::string, Kept, std::less<>>;  // by start_after
  struct Directory {
    Pages pages;
    int single_count = 0;  // names asked for one by one
    Clock::Monotonic single_since{};
  };
  struct Answer {
    bool is_known = false;
    const Entry* entry = nullptr;
    const Kept* kept = nullptr;
  };

  Result<storage::ListPage> list(const storage::ListRequest& request);
  Result<PagePointer> fetch_page(const std::string& directory, const std::string& start_after,
                                 std::vector<std::string> open_names);
  Result<PagePointer> shared_fetch(const std::string& directory, const std::string& start_after,
                                   const std::vector<std::string>& open_names);
  Result<Found> find_single(const std::string& directory, const std::string& name);
  bool may_show(const Entry& entry, std::string_view directory);
  void keep(const std::string& directory, PagePointer page);
  void drop(Directory& directory, Pages::iterator page);
  Answer look_up(std::string_view directory, std::string_view name, std::string_view sort_key);
  bool should_page(const std::string& directory);

  storage::ObjectStore& store_;
  storage::StoreWait* const wait_;
  const KeyShare* const share_;
  const ListingOptions options_;
  Clock& clock_;
  Counter& request_count_;
  std::mutex mutex_;
  std::condition_variable fetched_;
  std::map<std::string, Directory, std::less<>> directories_;
  std::list<std::pair<std::string, std::string>> recent_;  // (directory, start_after), newest first
  uint64_t entry_count_ = 0;
  std::set<std::pair<std::string, std::string>> in_flight_;
  std::unordered_map<std::string, Found> singles_;  // by key
  std::atomic<bool> has_warned_ = false;
};

}  // namespace yard::mount
