#include "api/job_search.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "api/timestamp.h"
#include "net/http_message.h"

namespace yard::api {
namespace {

const Json* member_ignoring_case(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  if (const auto found = object.find(name); found != object.end()) return &*found;
  for (const auto& [key, value] : object.items())
    if (equals_ignoring_case(key, name)) return &value;
  return nullptr;
}

Json tag_value(const Json& tags, std::string_view key) {
  for (const Json& tag : tags)
    if (tag.value("Key", std::string()) == key) return tag.value("Value", Json());
  return nullptr;
}

Json metric_value(const Json& metrics, std::string_view name) {
  for (const Json& metric : metrics)
    if (metric.value("MetricName", std::string()) == name) return metric.value("Value", Json());
  return nullptr;
}

std::optional<double> number_in(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  if (text == "true") return 1;
  if (text == "false") return 0;
  return parse_timestamp(text);
}

std::string text_in(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Below, at or above 0; as numbers only where both are.
int compare(const Json& value, const std::string& given) {
  const auto left = number_in(value);
  const auto right = number_in(Json(given));
  if (left && right) return *left < *right ? -1 : int(*left > *right);
  return text_in(value).compare(given);
}

bool is_in(const Json& value, std::string_view list) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view each = list.substr(0, comma);
    while (each.starts_with(' ')) each.remove_prefix(1);
    if (compare(value, std::string(each)) == 0) return true;
    list = comma == list.npos ? std::string_view() : list.substr(comma + 1);
  }
  return false;
}

AwsResult<bool> filter_matches(const Json& filter, const Json& job) {
  const auto name = filter.value("Name", std::string());
  const auto operation = filter.value("Operator", std::string("Equals"));
  const Json value = value_at(job, name);
  if (operation == "Exists") return !value.is_null();
  if (operation == "NotExists") return value.is_null();
  if (!filter.contains("Value"))
    return validation_error("the filter on '" + name + "' needs a Value");
  const auto given = filter["Value"].get<std::string>();
  if (value.is_null()) return operation == "NotEquals";
  if (operation == "Contains") return text_in(value).find(given) != std::string::npos;
  if (operation == "In") return is_in(value, given);
  const int order = compare(value, given);
  if (operation == "Equals") return order == 0;
  if (operation == "NotEquals") return order != 0;
  if (operation == "GreaterThan") return order > 0;
  if (operation == "GreaterThanOrEqualTo") return order >= 0;
  if (operation == "LessThan") return order < 0;
  return order <= 0;
}

// One element of a list that holds all the filters, whose names begin with that of the list.
AwsResult<bool> nested_matches(const Json& nested, const Json& job) {
  const auto property = nested.value("NestedPropertyName", std::string());
  const Json list = value_at(job, property);
  if (!list.is_array()) return false;
  for (const Json& element : list) {
    bool all = true;
    for (Json filter : nested.value("Filters", Json::array())) {
      auto name = filter.value("Name", std::string());
      if (name.starts_with(property + ".")) filter["Name"] = name.substr(property.size() + 1);
      YARD_ASSIGN(const bool one, filter_matches(filter, element));
      all = all && one;
    }
    if (all) return true;
  }
  return false;
}

}  // namespace

Json value_at(const Json& job, std::string_view path) {
  if (path.starts_with("Tags.")) return tag_value(job.value("Tags", Json::array()), path.substr(5));
  if (path.starts_with("Metrics."))
    return metric_value(job.value("FinalMetricDataList", Json::array()), path.substr(8));
  const Json* value = &job;
  while (!path.empty()) {
    // A hyperparameter may have dots in its name.
    if (const Json* whole = member_ignoring_case(*value, path)) return *whole;
    const size_t dot = path.find('.');
    value = member_ignoring_case(*value, path.substr(0, dot));
    if (value == nullptr) return nullptr;
    path = dot == path.npos ? std::string_view() : path.substr(dot + 1);
  }
  return *value;
}

AwsResult<bool> matches(const Json& expression, const Json& job) {
  const bool is_or = expression.value("Operator", std::string("And")) == "Or";
  std::vector<bool> parts;
  for (const Json& filter : expression.value("Filters", Json::array())) {
    YARD_ASSIGN(const bool one, filter_matches(filter, job));
    parts.push_back(one);
  }
  for (const Json& nested : expression.value("NestedFilters", Json::array())) {
    YARD_ASSIGN(const bool one, nested_matches(nested, job));
    parts.push_back(one);
  }
  for (const Json& inner : expression.value("SubExpressions", Json::array())) {
    YARD_ASSIGN(const bool one, matches(inner, job));
    parts.push_back(one);
  }
  const auto is_true = [](bool part) { return part; };
  return parts.empty() ||
         (is_or ? std::ranges::any_of(parts, is_true) : std::ranges::all_of(parts, is_true));
}

bool sorts_before(const Json& a, const Json& b) {
  const auto rank = [](const Json& value) {
    if (value.is_number()) return 0;
    return value.is_null() ? 2 : 1;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) == 0) return a.get<double>() < b.get<double>();
  return rank(a) == 1 && text_in(a) < text_in(b);
}

}  // namespace yard::api
