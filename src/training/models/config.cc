#include "models/config.h"

#include <algorithm>

#include "base/nearest_name.h"

namespace yard::models {
namespace {

bool is_size(const Json& value) {
  return value.is_number_integer() && json_internal::holds_integer<int64_t>(value) &&
         value.get<int64_t>() >= 1 && value.get<int64_t>() <= ConfigReader::kSizeMax;
}

const std::string kSizeText = "a whole number from 1 to " + std::to_string(ConfigReader::kSizeMax);

}  // namespace

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
  return it == config_.end() ? nullptr : &*it;
}

Json ConfigReader::raw(std::string_view key) {
  const Json* value = find(key);
  return value == nullptr ? Json() : *value;
}

bool ConfigReader::has(std::string_view key) const {
  if (!config_.is_object()) return false;
  const auto it = config_.find(key);
  return it != config_.end() && !it->is_null();
}

void ConfigReader::fail(std::string message) {
  if (failure_.empty()) failure_ = std::move(message);
}

void ConfigReader::fail_kind(std::string_view key, std::string_view wanted) {
  fail("'" + std::string(key) + "' must be " + std::string(wanted));
}

int64_t ConfigReader::integer(std::string_view key, int64_t fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (json_internal::holds_integer<int64_t>(*value)) return value->get<int64_t>();
  fail_kind(key, "a whole number");
  return fallback;
}

int64_t ConfigReader::size(std::string_view key, int64_t fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (is_size(*value)) return value->get<int64_t>();
  fail_kind(key, kSizeText);
  return fallback;
}

int64_t ConfigReader::size_or_null(std::string_view key, int64_t fallback) {
  if (has(key)) return size(key, fallback);
  ignored(key);
  return fallback;
}

int64_t ConfigReader::side_or_null(std::string_view key, int64_t fallback) {
  const Json value = raw(key);
  if (value.is_null()) return fallback;
  if (is_size(value)) return value.get<int64_t>();
  if (value.is_array() && value.size() == 2 && std::ranges::all_of(value, is_size))
    return value[0].get<int64_t>();
  fail_kind(key, kSizeText + ", or a list of two such");
  return fallback;
}

std::vector<int64_t> ConfigReader::sizes(std::string_view key, size_t count, int64_t fallback) {
  const Json* value = find(key);
  if (value == nullptr) return std::vector<int64_t>(count, fallback);
  if (is_size(*value)) return std::vector<int64_t>(count, value->get<int64_t>());
  if (value->is_array() && value->size() == count && std::ranges::all_of(*value, is_size)) {
    return value->get<std::vector<int64_t>>();
  }
  fail_kind(key, kSizeText + ", or a list of " + std::to_string(count) + " such");
  return std::vector<int64_t>(count, fallback);
}

double ConfigReader::number(std::string_view key, double fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_number()) return value->get<double>();
  fail_kind(key, "a number");
  return fallback;
}

std::optional<double> ConfigReader::number_or_null(std::string_view key) {
  if (has(key)) return number(key, 0);
  ignored(key);
  return std::nullopt;
}

std::vector<double> ConfigReader::numbers_or_null(std::string_view key) {
  const Json value = raw(key);
  if (value.is_null()) return {};
  if (value.is_array() &&
      std::ranges::all_of(value, [](const Json& entry) { return entry.is_number(); }))
    return value.get<std::vector<double>>();
  fail_kind(key, "a list of numbers");
  return {};
}

bool ConfigReader::boolean(std::string_view key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail_kind(key, "true or false");
  return fallback;
}

std::vector<bool> ConfigReader::booleans(std::string_view key, size_t count, bool fallback) {
  const Json value = raw(key);
  if (value.is_null()) return std::vector<bool>(count, fallback);
  if (value.is_boolean()) return std::vector<bool>(count, value.get<bool>());
  if (value.is_array() && value.size() == count &&
      std::ranges::all_of(value, [](const Json& entry) { return entry.is_boolean(); }))
    return value.get<std::vector<bool>>();
  fail_kind(key, "true or false, or a list of " + std::to_string(count) + " such");
  return std::vector<bool>(count, fallback);
}

std::string ConfigReader::text(std::string_view key, std::string_view fallback) {
  const Json* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  fail_kind(key, "a string");
  return std::string(fallback);
}

std::string ConfigReader::text_or_null(std::string_view key, std::string_view fallback) {
  if (config_.is_object() && config_.contains(key) && !has(key)) {
    ignored(key);
    return {};
  }
  return text(key, fallback);
}

std::string ConfigReader::choice(std::string_view key, std::string_view fallback,
                                 const std::vector<std::string_view>& known) {
  std::string value = text(key, fallback);
  if (std::ranges::find(known, value) == known.end())
    fail("'" + std::string(key) + "': '" + value + "' is not supported" + suggestion(value, known));
  return value;
}

std::vector<std::string> ConfigReader::texts(std::string_view key,
                                             std::vector<std::string> fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_array() &&
      std::ranges::all_of(*value, [](const Json& entry) { return entry.is_string(); })) {
    return value->get<std::vector<std::string>>();
  }
  fail_kind(key, "a list of strings");
  return fallback;
}

void ConfigReader::fixed(std::string_view key, const Json& value) {
  const Json* given = find(key);
  if (given == nullptr || *given == value) return;  // 1 and 1.0 compare equal
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
