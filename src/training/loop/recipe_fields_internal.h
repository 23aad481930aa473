// Fields: reads the keys of one map of a recipe and remembers the first thing that is wrong.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/nearest_name.h"
#include "base/units.h"
#include "loop/yaml_document.h"

namespace yard::loop {

// One use: read every known key, then take status(). Keys that were not read are unknown.
// `document` must outlive it.
class Fields {
 public:
  Fields(const YamlDocument& document, const Json& map, std::string path)
      : document_(document), map_(map), path_(std::move(path)) {
    if (!map_.is_object() && !map_.is_null())
      fail(path_, fmt::format("'{}' must be a map of keys", path_));
  }

  // Leaves `out` as it is when the key is absent or null.
  template <typename T>
  Fields& read(std::string_view key, T& out) {
    if (find(key) == nullptr) return *this;
    auto got = json_field<T>(map_, key, where(key));
    if (got)
      out = *std::move(got);
    else if (status_)
      status_ = std::move(got).error();
    return *this;
  }

  template <typename T>
  Fields& require(std::string_view key, T& out) {
    if (find(key) == nullptr)
      fail(path_, fmt::format("{}'{}' is missing", prefix(), key));
    else
      read(key, out);
    return *this;
  }

  // Between the bounds, both allowed.
  template <typename T>
  Fields& in_range(std::string_view key, const T& value, T low, T high) {
    if (status_ && !(value >= low && value <= high))
      fail(path_of(key),
           fmt::format("{}'{}' is {}, must be between {} and {}", prefix(), key, value, low, high));
    return *this;
  }

  Fields& read_size(std::string_view key, uint64_t& out_bytes) {
    const Json* value = find(key);
    if (value == nullptr) return *this;
    auto got = parse_size_bytes(value->is_string() ? value->get<std::string>() : value->dump());
    if (got)
      out_bytes = *got;
    else
      fail(path_of(key), fmt::format("{}'{}': {}", prefix(), key, got.error().message));
    return *this;
  }

  template <typename E>
  Fields& read_enum(std::string_view key, E& out,
                    const std::vector<std::pair<std::string_view, E>>& words) {
    std::string word;
    if (find(key) == nullptr || !read(key, word).status_) return *this;
    std::vector<std::string_view> known;
    for (const auto& [name, value] : words) {
      if (name == word) {
        out = value;
        return *this;
      }
      known.push_back(name);
    }
    fail(path_of(key),
         fmt::format("{}'{}' is '{}'{}", prefix(), key, word, suggestion(word, known)));
    return *this;
  }

  template <typename E>
  Fields& require_enum(std::string_view key, E& out,
                       const std::vector<std::pair<std::string_view, E>>& words) {
    std::string word;
    return require(key, word).read_enum(key, out, words);
  }

  // The value of a key that the caller reads itself; nullptr when absent or null.
  const Json* find(std::string_view key) {
    known_.emplace_back(key);
    if (!map_.is_object()) return nullptr;
    const auto it = map_.find(key);
    return it == map_.end() || it->is_null() ? nullptr : &*it;
  }

  std::string path_of(std::string_view key) const {
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  }

  void fail(const std::string& path, std::string_view why) {
    if (status_)
      status_ = Error{Code::kInvalidArgument, fmt::format("{}: {}", document_.where(path), why)};
  }

  Status status() {
    if (!status_ || !map_.is_object()) return status_;
    for (const auto& [key, value] : map_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      fail(path_of(key),
           fmt::format("{}unknown key '{}'{}", prefix(), key, suggestion(key, known_)));
      break;
    }
    return status_;
  }

 private:
  std::string where(std::string_view key) const {
    const std::string place = document_.where(path_of(key));
    return path_.empty() ? place : fmt::format("{}: {}", place, path_);
  }
  std::string prefix() const { return path_.empty() ? "" : path_ + ": "; }

  const YamlDocument& document_;
  const Json& map_;
  const std::string path_;
  std::vector<std::string_view> known_;
  Status status_ = Ok{};
};

}  // namespace yard::loop
