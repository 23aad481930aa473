// S3Upload: an object written piece by piece as a multipart upload, or by one request when small.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "storage/s3_client_internal.h"

namespace yard::storage {

inline constexpr int kS3PartCountMax = 10'000;
inline constexpr uint64_t kS3PartBytesMax = uint64_t{5} << 30;

// How large part `index` (from 0) is: `part_bytes`, or as much as the hint needs to fit into 10,000
// parts. Without a hint it doubles every 1,000 parts, so that 5 TiB fit. Pure.
uint64_t s3_part_bytes(uint64_t part_bytes, uint64_t size_bytes_hint, int index);

// A multipart upload on the server, begun by create(). Thread-safe but for complete() and abort().
class S3Multipart {
 public:
  S3Multipart(std::shared_ptr<S3Service> service, std::string bucket, std::string key)
      : service_(std::move(service)),
        client_(service_->client()),
        bucket_(std::move(bucket)),
        key_(std::move(key)) {}

  Status create();
  bool is_open() const { return !upload_id_.empty(); }
  // checksum_base64: of `bytes`, by S3Options::upload_checksum.
  Result<s3_xml::UploadedPart> put_part(int number, std::span<const std::byte> bytes,
                                        std::string checksum_base64);
  // The same of what `read` gives, which is read once where the server takes trailers, else twice.
  // Contract: bodies are not signed.
  Result<s3_xml::UploadedPart> put_part_from(int number, const RangeReader& read,
                                             uint64_t size_bytes);
  // Bytes of another object: "/bucket/key" encoded, with its etag.
  Result<s3_xml::UploadedPart> copy_part(int number, std::string_view source, std::string_view etag,
                                         uint64_t offset, uint64_t size_bytes);
  // checksum_base64: of the whole; empty: unknown.
  Result<ObjectInfo> complete(const std::vector<s3_xml::UploadedPart>& parts,
                              std::string_view checksum_base64, uint64_t size_bytes,
                              const PutOptions& options);
  void abort();

 private:
  S3Request request(std::string method) const;
  Result<s3_xml::UploadedPart> send_part(int number, S3Request put);
  Result<s3_xml::UploadedPart> put_trailed_part(int number, const RangeReader& read,
                                                uint64_t size_bytes);
  Result<std::string> sum(const RangeReader& read, uint64_t size_bytes) const;
  Result<ObjectInfo> after_lost_answer(size_t part_count, std::string_view checksum_base64,
                                       uint64_t size_bytes, const Error& error) const;

  const std::shared_ptr<S3Service> service_;
  S3Client& client_;
  const std::string bucket_;
  const std::string key_;
  std::string upload_id_;
  bool takes_trailers_ = false;
};

class S3Upload final : public Upload {
 public:
  S3Upload(std::shared_ptr<S3Service> service, std::string bucket, std::string key,
           const PutOptions& options);
  ~S3Upload() override;

  Status write(std::span<const std::byte> bytes) override;
  Status write_from(uint64_t size_bytes, const RangeReader& read,
                    const std::function<void(uint64_t)>& on_written) override;
  Result<ObjectInfo> commit() override;

 private:
  struct Buffer {
    BufferPool::Buffer memory;
    uint64_t size_bytes = 0;           // filled
    bool is_of_budget = false;         // taken from the memory shared by all uploads
    std::optional<Checksum> checksum;  // of what is filled
  };
  // A part that is sent from where it is read, and keeps no memory.
  struct ReadPart {
    int number = 0;
    uint64_t size_bytes = 0;
    RangeReader read;  // from 0 on
    std::function<void(uint64_t)> on_written;
  };
  uint64_t next_part_bytes() const {
    return s3_part_bytes(client_.options().part_bytes, options_.size_bytes_hint, part_count_);
  }
  bool is_sent_straight(uint64_t left_bytes) const;
  Status take_buffer();
  void drop(Buffer& buffer);
  Result<std::span<std::byte>> next_piece(uint64_t bytes_max);
  void filled(std::span<const std::byte> piece);
  Result<int> add_part(uint64_t size_bytes);
  Status send_part();
  Status send_read_part(uint64_t offset, uint64_t size_bytes,
                        const std::shared_ptr<const RangeReader>& read,
                        const std::function<void(uint64_t)>& on_written);
  void run_part(int number, Buffer buffer);
  void run_read_part(const ReadPart& part);
  bool is_wanted();
  void end_part(int number, Result<s3_xml::UploadedPart> sent);
  Status wait_until_sent();
  Result<ObjectInfo> put_whole();

  const std::shared_ptr<S3Service> service_;
  S3Client& client_;
  const std::string bucket_;
  const std::string key_;
  const PutOptions options_;
  S3Multipart multipart_;
  Buffer filling_;
  int part_count_ = 0;
  uint64_t size_bytes_ = 0;
  bool done_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  int under_way_count_ = 0;
  bool own_buffer_in_use_ = false;  // the one that needs no budget
  std::optional<Error> error_;
  std::vector<s3_xml::UploadedPart> parts_;
  std::vector<uint64_t> part_sizes_;
};

}  // namespace yard::storage
