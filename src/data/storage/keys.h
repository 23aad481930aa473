// What a key may be, and which keys belong to a page of a listing: the rules every store shares.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "storage/object_store.h"

namespace yard::storage {

inline constexpr size_t kKeyBytesMax = 1024;

// kInvalidArgument, naming the key, unless it is one by object_store.h.
Status check_key(std::string_view key);
bool is_utf8(std::string_view text);

// kInvalidArgument when object_count_max is not in 1..1000.
Status check_list_request(const ListRequest& request);

// Builds one page out of keys offered in byte order. Not thread-safe.
class PageBuilder {
 public:
  // `request` must outlive the builder.
  explicit PageBuilder(const ListRequest& request) : request_(request) {}

  // Whether a key that starts with `folder` may still belong on the page. False lets a store skip
  // everything under it.
  bool may_hold(std::string_view folder) const;
  // Whether wants() could be true or note a common prefix; without noting anything.
  bool may_want(std::string_view key) const;
  // Whether this key belongs on the page as an object; a key that falls under a common prefix is
  // noted here and refused. Keys must come in order.
  bool wants(std::string_view key);
  void add(ObjectInfo info);
  // The page is full, and there is a further entry: nothing else is to be offered.
  bool done() const { return done_; }
  ListPage take();

 private:
  bool room();  // for one more entry; else done
  std::optional<std::string_view> common_prefix(std::string_view key) const;

  const ListRequest& request_;
  ListPage page_;
  std::string last_entry_;
  bool done_ = false;
};

}  // namespace yard::storage
