#include "storage/trailed_body.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/result.h"

namespace yard::storage {
namespace {

// Copies what of `text`, which stands at `start`, is at `at`; moves both on.
void copy_text(std::string_view text, uint64_t start, uint64_t& at, std::span<std::byte>& into) {
  if (at < start || at - start >= text.size()) return;
  text.remove_prefix(at - start);
  const size_t bytes = std::min(text.size(), into.size());
  std::memcpy(into.data(), text.data(), bytes);
  into = into.subspan(bytes);
  at += bytes;
}

}  // namespace

TrailedBody::TrailedBody(ChecksumAlgorithm algorithm, RangeReader read, uint64_t size_bytes)
    : algorithm_(algorithm),
      read_(std::move(read)),
      size_bytes_(size_bytes),
      before_(AwsChunkedEncoder::chunk_line(size_bytes)),
      encoder_(algorithm) {
  YARD_CHECK(size_bytes > 0);
}

Headers TrailedBody::headers() const {
  return AwsChunkedEncoder::headers(algorithm_, size_bytes_);
}

uint64_t TrailedBody::encoded_bytes() const {
  return AwsChunkedEncoder::encoded_size_bytes(algorithm_, size_bytes_, size_bytes_);
}

Status TrailedBody::read_content(std::span<std::byte> into) {
  const uint64_t position = at_ - before_.size();
  YARD_TRY(read_(position, into));
  encoder_.add(into);  // while the CPU's cache holds it
  at_ += into.size();
  if (position + into.size() == size_bytes_)
    behind_ = std::string(AwsChunkedEncoder::kChunkEnd) + encoder_.finish();
  return Ok{};
}

Status TrailedBody::read(uint64_t offset, std::span<std::byte> into) {
  if (offset == 0) {
    at_ = 0;
    encoder_ = AwsChunkedEncoder(algorithm_);
  }
  if (offset != at_) return Error{Code::kInternal, "a body was asked for out of order"};
  const uint64_t content_end = before_.size() + size_bytes_;
  copy_text(before_, 0, at_, into);
  if (!into.empty() && at_ < content_end) {
    const auto content = into.first(std::min<uint64_t>(into.size(), content_end - at_));
    YARD_TRY(read_content(content));
    into = into.subspan(content.size());
  }
  if (!into.empty()) copy_text(behind_, content_end, at_, into);
  YARD_CHECK(into.empty());
  return Ok{};
}

std::string TrailedBody::checksum_base64() const {
  YARD_CHECK(at_ >= before_.size() + size_bytes_);
  return encoder_.checksum_base64();
}

}  // namespace yard::storage
