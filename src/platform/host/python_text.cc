#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "host/script_mode.h"

namespace yard::host {
namespace {

// repr() of a float: the shortest digits that give it back, an exponent below 1e-4 and from 1e16.
std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 512> buffer;
  const double size = std::fabs(value);
  const bool is_plain = value == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = is_plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
  std::string text(buffer.data(), end);
  if (is_plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

// repr() of a text: single quotes, unless it holds such and no double ones.
std::string python_quoted(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\' || c == quote)
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + quote;
}

std::string python_repr(const Json& value) {
  if (value.is_string()) return python_quoted(value.get<std::string>());
  if (value.is_null()) return "None";
  return python_str(value);
}

}  // namespace

std::string python_str(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "";
    case Json::value_t::string:
      return value.get<std::string>();
    case Json::value_t::boolean:
      return value.get<bool>() ? "True" : "False";
    case Json::value_t::number_float:
      return python_float(value.get<double>());
    case Json::value_t::array: {
      std::string out = "[";
      for (const Json& item : value) out += (out.size() > 1 ? ", " : "") + python_repr(item);
      return out + "]";
    }
    case Json::value_t::object: {
      std::string out = "{";
      for (const auto& [name, item] : value.items())
        out += (out.size() > 1 ? ", " : "") + python_quoted(name) + ": " + python_repr(item);
      return out + "}";
    }
    default:
      return value.dump();
  }
}

}  // namespace yard::host
