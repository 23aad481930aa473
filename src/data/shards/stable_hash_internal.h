// Hashes that are the same on every machine and in every version: files and splits depend on them.
#pragma once

#include <cstdint>
#include <string_view>

namespace yard::shards {

// FNV-1a of 64 bits (Fowler, Noll, Vo), over one text after the other; each is followed by its
// length, so that no two lists of texts are the same stream of bytes.
class StableHash {
 public:
  StableHash& add(std::string_view text) {
    for (const char c : text) step(static_cast<unsigned char>(c));
    return add(uint64_t{text.size()});
  }
  StableHash& add(uint64_t number) {
    for (int i = 0; i < 8; ++i) step(static_cast<unsigned char>(number >> (8 * i)));
    return *this;
  }
  uint64_t value() const { return state_; }

 private:
  void step(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3; }
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace yard::shards
