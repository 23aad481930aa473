// Times on the wire: Unix seconds with fraction in JSON, ISO 8601 in the Query form and in XML.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace yard::api {

// "2026-11-30T05:16:27Z", with a fraction or an offset "+01:00" too; or Unix seconds as text.
// Nothing for anything else. Pure.
std::optional<double> parse_timestamp(std::string_view text);

// "2026-11-30T05:16:27.123Z".
std::string format_timestamp(double unix_s);

// As JSON clients see it: whole milliseconds, since microseconds of a double are noise.
double rounded_to_ms(double unix_s);

}  // namespace yard::api
