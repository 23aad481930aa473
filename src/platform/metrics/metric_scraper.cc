#include "metrics/metric_scraper.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <charconv>
#include <cmath>
#include <optional>

namespace yard::metrics {
namespace {

// A line of 256 KiB under "(.*)*x" would otherwise take hours.
constexpr uint32_t kMatchLimit = 200'000;
constexpr uint32_t kHeapKibMax = 4096;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

struct Expression {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_data, FreeMatch> match;
  uint64_t overran = 0;
};

PCRE2_SPTR8 units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR8>(text.data());
}

Result<Expression> compile(const MetricDefinition& definition) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Expression expression;
  expression.code.reset(pcre2_compile(units(definition.regex), definition.regex.size(),
                                      PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr));
  if (!expression.code) {
    char reason[256];
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR8*>(reason), sizeof reason);
    return Error{Code::kInvalidArgument,
                 fmt::format("metric '{}': regex '{}' at {}: {}", definition.name, definition.regex,
                             at, reason)};
  }
  pcre2_jit_compile(expression.code.get(), PCRE2_JIT_COMPLETE);  // without it it is only slower
  expression.match.reset(pcre2_match_data_create_from_pattern(expression.code.get(), nullptr));
  return expression;
}

std::optional<double> number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '+')) text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

}  // namespace

struct MetricScraper::Impl {
  std::vector<MetricDefinition> definitions;
  std::vector<Expression> expressions;
  std::unique_ptr<pcre2_match_context, FreeContext> context;

  std::optional<double> find(Expression& expression, std::string_view line) const {
    const int found = pcre2_match(expression.code.get(), units(line), line.size(), 0, 0,
                                  expression.match.get(), context.get());
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) ++expression.overran;
    if (found <= 0) return std::nullopt;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(expression.match.get());
    const size_t group = pcre2_get_ovector_count(expression.match.get()) > 1 ? 1 : 0;
    if (found <= static_cast<int>(group) || ends[2 * group] == PCRE2_UNSET) return std::nullopt;
    return number(line.substr(ends[2 * group], ends[2 * group + 1] - ends[2 * group]));
  }
};

MetricScraper::MetricScraper(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricScraper::MetricScraper(MetricScraper&&) noexcept = default;
MetricScraper& MetricScraper::operator=(MetricScraper&&) noexcept = default;
MetricScraper::~MetricScraper() = default;

Result<MetricScraper> MetricScraper::create(std::vector<MetricDefinition> definitions) {
  auto impl = std::make_unique<Impl>();
  for (const MetricDefinition& definition : definitions) {
    YARD_ASSIGN(Expression expression, compile(definition));
    impl->expressions.push_back(std::move(expression));
  }
  impl->definitions = std::move(definitions);
  impl->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(impl->context.get(), kMatchLimit);
  pcre2_set_heap_limit(impl->context.get(), kHeapKibMax);
  return MetricScraper(std::move(impl));
}

std::vector<ScrapedValue> MetricScraper::scrape(std::string_view line) {
  std::vector<ScrapedValue> values;
  for (size_t i = 0; i < impl_->expressions.size(); ++i)
    if (const auto value = impl_->find(impl_->expressions[i], line))
      values.push_back({.definition_index = i, .value = *value});
  return values;
}

const std::vector<MetricDefinition>& MetricScraper::definitions() const {
  return impl_->definitions;
}

uint64_t MetricScraper::overran(size_t definition_index) const {
  return impl_->expressions[definition_index].overran;
}

}  // namespace yard::metrics
