#include "gateway/lister.h"

#include <algorithm>

#include "base/log.h"

namespace yard::gateway {
namespace {

constexpr size_t kKeptCountMax = 1024;

// The common prefix under which the key or folder falls; nothing without a delimiter in it.
std::optional<std::string_view> common_prefix_of(std::string_view key, const ListQuery& query) {
  if (query.delimiter.empty() || key.size() < query.prefix.size()) return std::nullopt;
  const size_t at = key.find(query.delimiter, query.prefix.size());
  if (at == key.npos) return std::nullopt;
  return key.substr(0, at + query.delimiter.size());
}

std::string walk_name(const Bucket& bucket, const ListQuery& query, const std::string& after) {
  std::string name = bucket.name();
  for (const std::string* part : {&query.prefix, &query.delimiter, &after})
    name += '\0' + std::to_string(part->size()) + '\0' + *part;
  return name;
}

// Nothing for what is no object, or none any more.
S3Result<std::optional<ListedObject>> look_up(const Bucket& bucket, std::string key) {
  auto object = bucket.open(key);
  if (object)
    return std::optional(ListedObject{std::move(key), object->size_bytes(), object->meta.etag,
                                      object->modified(), object->meta.checksum});
  if (object.error().code == s3::kNoSuchKey.code) return std::optional<ListedObject>();
  // One file that may not be read must not hide the others.
  if (object.error().code == s3::kAccessDenied.code) {
    log_warning("s3: {}/{} is not listed: it may not be read", bucket.name(), key);
    return std::optional<ListedObject>();
  }
  return std::move(object).error();
}

class PageMaker {
 public:
  PageMaker(const Bucket& bucket, const ListQuery& query, KeyWalk& walk)
      : bucket_(bucket), query_(query), walk_(walk) {}

  S3Result<ListedPage> make() {
    if (query_.entry_count_max == 0) return std::move(page_);
    while (!page_.is_truncated) {
      const auto next = walk_.peek(bucket_);
      if (!next) break;
      const auto common = common_prefix_of(next->key, query_);
      if (common && *common == query_.after) {
        walk_.pass_all(*common);
      } else if (next->is_folder && (!common || !lies_wholly_behind(next->key))) {
        walk_.enter(bucket_);
      } else if (next->is_folder) {
        if (holds_object(bucket_, next->key))
          add_common(std::string(*common));
        else
          walk_.pass();
      } else {
        YARD_TRY(offer_object(next->key, common));
      }
    }
    return std::move(page_);
  }

 private:
  // Whether the position from which the listing goes on is not among the keys of the folder.
  bool lies_wholly_behind(std::string_view folder) const {
    return !std::string_view(query_.after).starts_with(folder);
  }

  bool room() {
    if (page_.objects.size() + page_.common_prefixes.size() < query_.entry_count_max) return true;
    page_.is_truncated = true;
    return false;
  }

  void add_common(std::string common) {
    if (!room()) return;
    walk_.pass_all(common);
    page_.last = common;
    page_.common_prefixes.push_back(std::move(common));
  }

  S3Status offer_object(const std::string& key, std::optional<std::string_view> common) {
    YARD_ASSIGN(auto object, look_up(bucket_, key));
    if (!object) {
      walk_.pass();
    } else if (common) {
      add_common(std::string(*common));
    } else if (room()) {
      walk_.pass();
      page_.last = key;
      page_.objects.push_back(*std::move(object));
    }
    return Ok{};
  }

  const Bucket& bucket_;
  const ListQuery& query_;
  KeyWalk& walk_;
  ListedPage page_;
};

}  // namespace

S3Result<ListedPage> Lister::list(const Bucket& bucket, const ListQuery& query) {
  auto walk = take(walk_name(bucket, query, query.after));
  if (!walk || !walk->is_current(bucket)) walk = begin(query);
  YARD_ASSIGN(ListedPage page, PageMaker(bucket, query, *walk).make());
  if (page.is_truncated) keep(walk_name(bucket, query, page.last), *std::move(walk));
  return page;
}

KeyWalk Lister::begin(const ListQuery& query) {
  const std::scoped_lock lock(mutex_);
  ++begun_count_;
  return KeyWalk(query.prefix, query.after, clock_);
}

std::optional<KeyWalk> Lister::take(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(kept_, name, &Kept::name);
  if (found == kept_.end()) return std::nullopt;
  KeyWalk walk = std::move(found->walk);
  kept_bytes_ -= walk.memory_bytes();
  kept_.erase(found);
  return walk;
}

void Lister::keep(std::string name, KeyWalk walk) {
  const size_t bytes = walk.memory_bytes();
  if (bytes > memory_bytes_max_) return;
  const std::scoped_lock lock(mutex_);
  kept_.push_front({std::move(name), std::move(walk)});
  kept_bytes_ += bytes;
  while (kept_bytes_ > memory_bytes_max_ || kept_.size() > kKeptCountMax) {
    kept_bytes_ -= kept_.back().walk.memory_bytes();
    kept_.pop_back();
  }
}

size_t Lister::kept_bytes() const {
  const std::scoped_lock lock(mutex_);
  return kept_bytes_;
}

size_t Lister::kept_count() const {
  const std::scoped_lock lock(mutex_);
  return kept_.size();
}

uint64_t Lister::begun_count() const {
  const std::scoped_lock lock(mutex_);
  return begun_count_;
}

}  // namespace yard::gateway
