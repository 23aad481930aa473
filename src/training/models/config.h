// Reading a model's config.json: the keys of diffusers and transformers.
//
// A key that we implement is read; one that we know and support only at one value must have that
// value; housekeeping keys ("_class_name", "torch_dtype", ...) pass; any other key is an error
// that names the nearest known one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace yard::models {

class ConfigReader {
 public:
  // `what` names the document in errors: "unet/config.json".
  ConfigReader(const Json& config, std::string what);

  int64_t integer(std::string_view key, int64_t fallback);
  double number(std::string_view key, double fallback);
  bool boolean(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);
  // A list, or one value meant for all `count` entries.
  std::vector<int64_t> integers(std::string_view key, size_t count, int64_t fallback);
  std::vector<std::string> texts(std::string_view key, std::vector<std::string> fallback);
  // A key that we support at one value only; null counts as that value.
  void fixed(std::string_view key, const Json& value);
  // A key that has no effect on us.
  void ignored(std::string_view key);

  // An error of our own, kept if it is the first: "'block_out_channels' ...".
  void fail(std::string message);
  // The first error met, or a key that nobody asked for.
  Status finish() const;

 private:
  const Json* find(std::string_view key);

  const Json& config_;
  std::string what_;
  std::vector<std::string> known_;
  std::string failure_;
};

}  // namespace yard::models
