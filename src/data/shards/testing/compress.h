// Whole archives compressed, for tests of their reading.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <string>

#include "base/result.h"

namespace yard::shards::testing {

inline std::string gzipped(const std::string& text) {
  z_stream stream = {};
  constexpr int kGzip = 16, kMemoryLevel = 8;
  YARD_CHECK(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + kGzip, kMemoryLevel,
                          Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, uLong(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = uInt(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = uInt(out.size());
  YARD_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string zstd_compressed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  constexpr int kLevel = 1;
  const size_t size = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), kLevel);
  YARD_CHECK(!ZSTD_isError(size));
  out.resize(size);
  return out;
}

}  // namespace yard::shards::testing
