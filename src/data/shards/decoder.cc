#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "shards/decoder_internal.h"

namespace yard::shards {
namespace {

// Members one after the other are one stream (RFC 1952, section 2.2).
class GzipDecoder final : public Decoder {
 public:
  GzipDecoder() {
    constexpr int kGzipOnly = 16;
    YARD_CHECK(::inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK);
  }
  ~GzipDecoder() override { ::inflateEnd(&stream_); }

  Result<size_t> decode(std::span<const std::byte>& in, std::span<std::byte> out) override {
    constexpr size_t kStepBytesMax = size_t{1} << 30;  // zlib counts in 32 bits
    if (in.empty() && is_at_end_) return size_t{0};
    if (is_at_end_) ::inflateReset(&stream_);
    is_at_end_ = false;
    const auto given = static_cast<uInt>(std::min(in.size(), kStepBytesMax));
    const auto room = static_cast<uInt>(std::min(out.size(), kStepBytesMax));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
    stream_.avail_in = given;
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = room;
    const int outcome = ::inflate(&stream_, Z_NO_FLUSH);
    if (outcome != Z_OK && outcome != Z_STREAM_END && outcome != Z_BUF_ERROR)
      return Error{Code::kCorrupt,
                   fmt::format("the gzip data is damaged ({})",
                               stream_.msg == nullptr ? "unknown reason" : stream_.msg)};
    is_at_end_ = outcome == Z_STREAM_END;
    in = in.subspan(given - stream_.avail_in);
    return size_t{room - stream_.avail_out};
  }
  bool is_at_end() const override { return is_at_end_; }

 private:
  z_stream stream_ = {};
  bool is_at_end_ = false;
};

class ZstdDecoder final : public Decoder {
 public:
  ZstdDecoder() : context_(::ZSTD_createDCtx()) { YARD_CHECK(context_ != nullptr); }
  ~ZstdDecoder() override { ::ZSTD_freeDCtx(context_); }

  Result<size_t> decode(std::span<const std::byte>& in, std::span<std::byte> out) override {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    const size_t outcome = ::ZSTD_decompressStream(context_, &output, &input);
    if (::ZSTD_isError(outcome) != 0)
      return Error{Code::kCorrupt,
                   fmt::format("the zstd data is damaged ({})", ::ZSTD_getErrorName(outcome))};
    // 0 tells the end of a frame, and only in the call that reaches it.
    if (input.pos > 0 || output.pos > 0) is_at_end_ = outcome == 0;
    in = in.subspan(input.pos);
    return output.pos;
  }
  bool is_at_end() const override { return is_at_end_; }

 private:
  ZSTD_DCtx* const context_;
  bool is_at_end_ = false;
};

}  // namespace

std::unique_ptr<Decoder> Decoder::create(TarCompression compression) {
  switch (compression) {
    case TarCompression::kGzip:
      return std::make_unique<GzipDecoder>();
    case TarCompression::kZstd:
      return std::make_unique<ZstdDecoder>();
    case TarCompression::kNone:
      break;
  }
  YARD_UNREACHABLE();
}

}  // namespace yard::shards
