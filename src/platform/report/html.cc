#include "report/html.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace yard::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kDash = "\xE2\x80\x93";         // en dash: no value

// Length of the well-formed UTF-8 sequence at the start of `text` (RFC 3629), 0 when there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool outside = (first == 0xED && byte(1) > 0x9F) || (first == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : length;
}

std::string_view escape_of(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

bool forbidden(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0 || forbidden(text[0])) {
      out += kReplacement;
    } else if (const std::string_view escaped = escape_of(text[0]); !escaped.empty()) {
      out += escaped;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string png_data_uri(std::span<const std::byte> png) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out = "data:image/png;base64,";
  out.reserve(out.size() + (png.size() + 2) / 3 * 4);
  for (size_t i = 0; i < png.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < png.size() ? std::to_integer<uint32_t>(png[i + k]) : 0);
    }
    const size_t digit_count = std::min<size_t>(png.size() - i, 3) + 1;
    for (size_t k = 0; k < 4; ++k) {
      out += k < digit_count ? kAlphabet[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

std::string format_number(double value) {
  if (!std::isfinite(value)) return std::string(kDash);
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < 0.001 || size >= 1e7) return fmt::format("{:.2e}", value);
  if (size >= 100) return fmt::format("{:.0f}", value);
  // The digits before the point are 2, 1 or none; zeros after the point do not count.
  const int decimals = 2 - static_cast<int>(std::floor(std::log10(size)));
  return fmt::format("{:.{}f}", value, decimals);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return std::string(kDash);
  if (std::abs(seconds) < 10) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string format_percent(double ratio) {
  if (!std::isfinite(ratio)) return std::string(kDash);
  return fmt::format("{:.1f} %", 100 * ratio);
}

}  // namespace yard::report
