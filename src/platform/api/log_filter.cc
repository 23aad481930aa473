#include "api/log_filter.h"

#include <algorithm>

namespace yard::api {
namespace {

AwsError invalid(std::string message) {
  return AwsError("InvalidParameterException", std::move(message));
}

// A term at the front of the text: a word, or a phrase in quotes.
AwsResult<std::string> take_term(std::string_view& text) {
  if (!text.starts_with('"')) {
    const size_t end = std::min(text.find(' '), text.size());
    std::string word(text.substr(0, end));
    text.remove_prefix(end);
    return word;
  }
  std::string phrase;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return phrase;
    }
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    phrase += text[i];
  }
  return invalid("Invalid filter pattern: a quote is not closed");
}

bool contains(std::string_view message, const std::string& term) {
  return message.find(term) != message.npos;
}

}  // namespace

AwsResult<LogFilter> LogFilter::parse(std::string_view pattern) {
  if (pattern.starts_with('{') || pattern.starts_with('[') || pattern.starts_with('%'))
    return invalid("Invalid filter pattern: only terms and phrases are known here");
  LogFilter filter;
  while (!pattern.empty()) {
    if (pattern.starts_with(' ')) {
      pattern.remove_prefix(1);
      continue;
    }
    auto* terms = &filter.all_of_;
    if (pattern.starts_with('?')) terms = &filter.any_of_;
    if (pattern.starts_with('-')) terms = &filter.none_of_;
    if (terms != &filter.all_of_) pattern.remove_prefix(1);
    YARD_ASSIGN(std::string term, take_term(pattern));
    if (!term.empty()) terms->push_back(std::move(term));
  }
  return filter;
}

bool LogFilter::matches(std::string_view message) const {
  const auto is_there = [&](const std::string& term) { return contains(message, term); };
  return std::ranges::all_of(all_of_, is_there) && std::ranges::none_of(none_of_, is_there) &&
         (any_of_.empty() || std::ranges::any_of(any_of_, is_there));
}

}  // namespace yard::api
