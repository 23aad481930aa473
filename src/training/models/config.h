// Reading a model's config.json: the keys of diffusers and transformers.
//
// A key that we implement is read; one that we know and support only at one value must have that
// value; housekeeping keys ("_class_name", "torch_dtype", ...) pass; any other key is an error
// that names the nearest known one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace yard::models {

// Each reading function gives `fallback` for a key that is absent, and for one that is wrong, which
// finish() then reports. null means "no such layer" in these configs: it is an error wherever a
// value is expected, unless the function's name says otherwise.
class ConfigReader {
 public:
  static constexpr int64_t kSizeMax = int64_t{1} << 20;

  // `what` names the document in errors: "unet/config.json". `config` must outlive the reader.
  ConfigReader(const Json& config, std::string what);

  int64_t integer(std::string_view key, int64_t fallback);
  // A count or a width: from 1 to kSizeMax.
  int64_t size(std::string_view key, int64_t fallback);
  int64_t size_or_null(std::string_view key, int64_t fallback);
  // A side of square pictures; of [height, width] the height.
  int64_t side_or_null(std::string_view key, int64_t fallback);
  // `count` sizes: a list, or one value meant for all of them.
  std::vector<int64_t> sizes(std::string_view key, size_t count, int64_t fallback);
  double number(std::string_view key, double fallback);
  std::optional<double> number_or_null(std::string_view key);
  std::vector<double> numbers_or_null(std::string_view key);
  bool boolean(std::string_view key, bool fallback);
  // `count` of them: a list, or one value meant for all.
  std::vector<bool> booleans(std::string_view key, size_t count, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);
  // Empty for null. Only for keys whose null has a meaning of its own.
  std::string text_or_null(std::string_view key, std::string_view fallback);
  // One of `known`, else an error that names the nearest.
  std::string choice(std::string_view key, std::string_view fallback,
                     const std::vector<std::string_view>& known);
  std::vector<std::string> texts(std::string_view key, std::vector<std::string> fallback);
  // A key that we support at one value only.
  void fixed(std::string_view key, const Json& value);
  // A key that has no effect on us.
  void ignored(std::string_view key);
  // The value as it stands, null where the key is absent. Counts as asking for it.
  Json raw(std::string_view key);
  // Present and not null. Does not count as asking for the key.
  bool has(std::string_view key) const;

  // An error of our own, kept if it is the first: "'block_out_channels' ...".
  void fail(std::string message);
  bool failed() const { return !failure_.empty(); }
  // The first error met, or a key that nobody asked for.
  Status finish() const;

 private:
  const Json* find(std::string_view key);
  void fail_kind(std::string_view key, std::string_view wanted);

  const Json& config_;
  std::string what_;
  std::vector<std::string> known_;
  std::string failure_;
};

}  // namespace yard::models
