// Decoder: unpacks a gzip or zstd stream piece by piece.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "shards/tar_scanner.h"

namespace yard::shards {

// Not thread-safe.
class Decoder {
 public:
  static std::unique_ptr<Decoder> create(TarCompression compression);
  virtual ~Decoder() = default;

  // Takes from the front of `in`, fills from the front of `out`; how many bytes of `out`. 0 with
  // `in` empty: it needs more. kCorrupt, without a place: the stream is damaged.
  virtual Result<size_t> decode(std::span<const std::byte>& in, std::span<std::byte> out) = 0;
  // Whether the stream may end here.
  virtual bool is_at_end() const = 0;
};

}  // namespace yard::shards
