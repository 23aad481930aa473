// Percent-encoding as AWS signs it, and the parts of a request target. Pure functions.
//
// A '+' is a plus sign, never a space: AWS clients send spaces as %20 and no form decoding is
// applied. Bytes are bytes: nothing here asks for UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard {

// Everything but A-Z a-z 0-9 - . _ ~ becomes %XX with upper-case digits.
std::string percent_encode(std::string_view bytes);
// Likewise, and '/' stays: the path of an S3 key.
std::string percent_encode_path(std::string_view bytes);
// kInvalidArgument for a '%' without two hexadecimal digits behind it.
Result<std::string> percent_decode(std::string_view text);

struct QueryPair {
  std::string name;
  std::string value;
  bool operator==(const QueryPair&) const = default;
};

// The pairs of a raw query (the text behind '?') in their order, decoded; duplicates stay. A name
// without '=' has an empty value; empty pieces ("a&&b") are no pairs. kInvalidArgument as
// percent_decode.
Result<std::vector<QueryPair>> parse_query(std::string_view raw_query);
// "name=value&..." encoded, in the order given; a name with an empty value keeps its '='.
std::string format_query(const std::vector<QueryPair>& query);

struct RequestTarget {
  std::string raw_path;  // begins with '/', or is "*"; still encoded
  std::string raw_query;
  std::string authority;  // "host:port" of an absolute target; else empty
};

// The target of a request line: "/path?query", "http://host/path?query" or "*". kInvalidArgument
// for others: empty, with a space, control character or '#', without '/' at the start.
Result<RequestTarget> split_target(std::string_view raw_target);

// A path without ".", ".." and empty parts, as RFC 3986 section 5.2.4 and AWS services other than
// S3 have it; a '/' at the end stays. Never leaves the root.
std::string normalize_path(std::string_view path);

}  // namespace yard
