#include "api/text_pattern.h"

#include <mutex>
#include <regex>

namespace yard::api {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Java's classes in ECMAScript's words.
std::string as_ecmascript(std::string text) {
  replace_all(text, "\\p{L}", "a-zA-Z\x80-\xff");
  replace_all(text, "\\p{N}", "0-9");
  replace_all(text, "\\p{Z}", " ");
  replace_all(text, "\\p{Alnum}", "a-zA-Z0-9");
  return text;
}

}  // namespace

// The seam to std::regex: what it throws ends here.
struct TextPattern::Compiled {
  explicit Compiled(std::string text) : source(std::move(text)) {}

  void compile() {
    try {
      regex.assign(as_ecmascript(source), std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& error) {
      problem = error.what();
    }
  }

  const std::string source;
  std::once_flag once;
  std::regex regex;
  std::string problem;
};

TextPattern::TextPattern(std::string source)
    : compiled_(std::make_shared<Compiled>(std::move(source))) {}

const std::string& TextPattern::source() const {
  return compiled_->source;
}

Status TextPattern::check() const {
  std::call_once(compiled_->once, [this] { compiled_->compile(); });
  if (compiled_->problem.empty()) return Ok{};
  return Error{Code::kInvalidArgument, compiled_->source + ": " + compiled_->problem};
}

bool TextPattern::matches(std::string_view text) const {
  if (text.size() > kTextBytesMax || !check()) return true;
  try {
    return std::regex_match(text.begin(), text.end(), compiled_->regex);
  } catch (const std::regex_error&) {
    return false;  // it would have cost too much: no text that anybody means
  }
}

}  // namespace yard::api
