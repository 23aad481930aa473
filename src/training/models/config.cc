#include "models/config.h"

namespace yard::models {

ConfigReader::ConfigReader(const Json& config, std::string what)
    : config_(config), what_(std::move(what)) {
  if (!config.is_object()) fail("not an object");
  for (const char* key : {"_class_name", "_diffusers_version", "_name_or_path", "architectures",
                          "dtype", "torch_dtype", "transformers_version", "model_type"}) {
    ignored(key);
  }
}

const Json* ConfigReader::find(std::string_view key) {
  known_.emplace_back(key);
  if (!config_.is_object()) return nullptr;
  const auto it = config_.find(key);
  return it == config_.end() || it->is_null() ? nullptr : &*it;
}

void ConfigReader::fail(std::string message) {
  if (failure_.empty()) failure_ = std::move(message);
}

int64_t ConfigReader::integer(std::string_view key, int64_t fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number_integer()) {
    fail("'" + std::string(key) + "' must be a whole number");
    return fallback;
  }
  return value->get<int64_t>();
}

double ConfigReader::number(std::string_view key, double fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number()) {
    fail("'" + std::string(key) + "' must be a number");
    return fallback;
  }
  return value->get<double>();
}

bool ConfigReader::boolean(std::string_view key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    fail("'" + std::string(key) + "' must be true or false");
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::text(std::string_view key, std::string_view fallback) {
  const Json* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    fail("'" + std::string(key) + "' must be a string");
    return std::string(fallback);
  }
  return value->get<std::string>();
}

std::vector<int64_t> ConfigReader::integers(std::string_view key, size_t count, int64_t fallback) {
  const Json* value = find(key);
  if (value == nullptr) return std::vector<int64_t>(count, fallback);
  if (value->is_number_integer()) return std::vector<int64_t>(count, value->get<int64_t>());
  std::vector<int64_t> list;
  bool good = value->is_array();
  if (good) {
    for (const Json& entry : *value) good = good && entry.is_number_integer();
  }
  if (good) list = value->get<std::vector<int64_t>>();
  if (list.size() != count) {
    fail("'" + std::string(key) + "' must be a whole number or a list of " + std::to_string(count));
    return std::vector<int64_t>(count, fallback);
  }
  return list;
}

std::vector<std::string> ConfigReader::texts(std::string_view key,
                                             std::vector<std::string> fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  bool good = value->is_array();
  if (good) {
    for (const Json& entry : *value) good = good && entry.is_string();
  }
  if (!good) {
    fail("'" + std::string(key) + "' must be a list of strings");
    return fallback;
  }
  return value->get<std::vector<std::string>>();
}

void ConfigReader::fixed(std::string_view key, const Json& value) {
  const Json* given = find(key);
  if (given == nullptr || *given == value) return;
  // 1 and 1.0 are the same to a config's reader.
  if (given->is_number() && value.is_number() && given->get<double>() == value.get<double>())
    return;
  fail("'" + std::string(key) + "': " + given->dump() + " is not supported, only " + value.dump());
}

void ConfigReader::ignored(std::string_view key) {
  known_.emplace_back(key);
}

Status ConfigReader::finish() const {
  if (!failure_.empty()) return Error{Code::kInvalidArgument, what_ + ": " + failure_};
  const std::vector<std::string_view> known(known_.begin(), known_.end());
  return refuse_unknown_keys(config_, known, what_);
}

}  // namespace yard::models
