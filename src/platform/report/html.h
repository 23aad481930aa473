// Text for a web page: escaping, embedding, and numbers as people read them. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace yard::report {

// `text` safe inside an element or a quoted attribute. Control characters that HTML forbids, and
// bytes that are not UTF-8, become U+FFFD: log lines and prompts come from anywhere.
std::string escape_html(std::string_view text);
// "data:image/png;base64,...".
std::string png_data_uri(std::span<const std::byte> png);

// Three significant digits, no exponent between 0.001 and 10 million: "0.0421", "12.3", "1284".
// "–" for a value that is not finite.
std::string format_number(double value);
// "0.38 s", "42 s", "5 min 12 s", "3 h 04 min"; "–" when not finite.
std::string format_seconds(double seconds);
// "12.3 %" of a ratio in 0..1; "–" when not finite.
std::string format_percent(double ratio);

}  // namespace yard::report
