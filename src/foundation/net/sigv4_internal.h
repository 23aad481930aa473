// The texts that Signature Version 4 is computed over; shared by signing and verifying.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "net/http_message.h"

namespace yard::sigv4_internal {

inline constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

// "20130524T000000Z".
std::string format_timestamp(Clock::Wall time);
std::optional<Clock::Wall> parse_timestamp(std::string_view text);

// The path as it is signed: for S3 as it was sent; for other services normalised and encoded again.
std::string canonical_path_as_sent(std::string_view raw_path, std::string_view service);
// The pairs of the query sorted, without X-Amz-Signature, each encoded as it was sent.
std::string canonical_query_as_sent(std::string_view raw_query);
// What a verifier tries: decoded and encoded anew, and as it was sent where that differs. Empty
// when a '%' stands alone.
std::vector<std::string> canonical_paths(std::string_view raw_path, std::string_view service);
std::vector<std::string> canonical_queries(std::string_view raw_query);

// "name:value\n" of each name (lower case), values trimmed, runs of white space made one space,
// lines of the same name joined by ','. Nothing for a name that the request does not have.
std::optional<std::string> canonical_headers(const Headers& headers,
                                             std::span<const std::string_view> names);

std::string canonical_request(std::string_view method, std::string_view canonical_path,
                              std::string_view canonical_query, std::string_view canonical_headers,
                              std::string_view signed_headers, std::string_view payload);

std::string credential_scope(std::string_view date, std::string_view region,
                             std::string_view service);
std::string string_to_sign(std::string_view timestamp, std::string_view scope,
                           std::string_view canonical_request);

std::string join(std::span<const std::string_view> parts, char separator);
std::string to_lower(std::string_view text);  // ASCII

}  // namespace yard::sigv4_internal
