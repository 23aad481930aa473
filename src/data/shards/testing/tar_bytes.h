// Tars built byte by byte, so that a malformed one is as easy to write as a good one.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace yard::shards::testing {

// Writes the right checksum into the header at `offset` of `tar`.
inline void fix_checksum(std::string& tar, size_t offset = 0) {
  tar.replace(offset + 148, 8, 8, ' ');
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(tar[offset + i]);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  tar.replace(offset + 148, 7, digits, 7);
}

inline std::string tar_header(std::string_view name, size_t size_bytes, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  char size_octal[16];
  std::snprintf(size_octal, sizeof size_octal, "%011zo", size_bytes);
  header.replace(124, 11, size_octal);
  header[156] = type;
  header.replace(257, 8, "ustar\00000", 8);
  fix_checksum(header);
  return header;
}

inline std::string padded(std::string content) {
  content.resize((content.size() + 511) / 512 * 512);
  return content;
}

inline std::string tar_member(std::string_view name, const std::string& content, char type = '0') {
  return tar_header(name, content.size(), type) + padded(content);
}

inline std::string tar_end() {
  return std::string(1024, '\0');
}

}  // namespace yard::shards::testing
