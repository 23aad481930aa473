// Little-endian numbers and counted strings, written and read with bounds.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace yard::shards {

template <std::unsigned_integral T>
void put_number(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += char(static_cast<uint64_t>(value) >> (8 * i));
}

// Reads from the front; after the first read past the end every read gives zero or nothing and
// ok() is false, so that a run of reads needs one check.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <std::unsigned_integral T>
  T number() {
    const std::string_view raw = take(sizeof(T));
    uint64_t value = 0;
    for (size_t i = 0; i < raw.size(); ++i)
      value |= uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    return static_cast<T>(value);
  }
  std::string_view take(uint64_t size_bytes) {
    if (size_bytes > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const std::string_view taken = bytes_.substr(0, size_bytes);
    bytes_.remove_prefix(size_bytes);
    return taken;
  }
  bool ok() const { return ok_; }
  uint64_t left_bytes() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace yard::shards
