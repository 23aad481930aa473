#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/crc32c.h"
#include "base/log.h"
#include "checkpoint/file_writer_internal.h"
#include "storage/work_queue.h"

namespace yard::checkpoint {
namespace {

// One file: the record of it and of the chunks in it.
struct FileJob {
  std::vector<size_t> chunks;  // indices into the layout
  FileRecord record;
  std::vector<ChunkRecord> chunk_records;
  std::optional<Status> outcome;
};

class Writer {
 public:
  Writer(const CheckpointStore& checkpoints, const RankFiles& where, const Layout& layout,
         std::span<const std::span<const std::byte>> bytes, const FileWriterOptions& options)
      : checkpoints_(checkpoints),
        where_(where),
        layout_(layout),
        bytes_(bytes),
        options_(options) {}

  Status write(FileJob& job) {
    const std::string key = checkpoints_.folder_of(where_.step) + job.record.name;
    YARD_ASSIGN(const std::string header, make_header(job));
    YARD_ASSIGN(const auto upload,
                checkpoints_.store().upload(key, {.size_bytes_hint = job.record.size_bytes}));
    YARD_TRY(upload->write(std::as_bytes(std::span(header))));
    for (size_t i = 0; i < job.chunks.size(); ++i)
      YARD_TRY(write_chunk(*upload, bytes_[job.chunks[i]], job.chunk_records[i]));
    YARD_ASSIGN(const storage::ObjectInfo written, upload->commit());
    return verify(key, written, job);
  }

 private:
  Result<std::string> make_header(FileJob& job) {
    std::vector<FileEntry> entries;
    for (const size_t index : job.chunks) {
      const ChunkInfo& chunk = layout_[index];
      entries.push_back({.name = entry_name(chunk),
                         .info = {chunk.info.dtype, shape_of(chunk.region, chunk.info.shape)},
                         .size_bytes = chunk_bytes(chunk.info, chunk.region)});
    }
    YARD_ASSIGN(std::string header, format_header(entries, {{"format", "pt"}}));
    job.record.header_bytes = job.record.size_bytes = header.size();
    job.record.header_crc32c = crc32c(std::as_bytes(std::span(header)));
    for (size_t i = 0; i < entries.size(); ++i) {
      job.chunk_records.push_back(
          {.region = layout_[job.chunks[i]].region, .offset = entries[i].offset});
      job.record.size_bytes += entries[i].size_bytes;
    }
    return header;
  }

  // Block by block, so that the checksum leaves in the cache what is written next.
  static Status write_chunk(storage::Upload& upload, std::span<const std::byte> bytes,
                            ChunkRecord& record) {
    while (!bytes.empty()) {
      const auto block = bytes.first(std::min<size_t>(kBlockBytes, bytes.size()));
      record.block_crc32c.push_back(crc32c(block));
      YARD_TRY(upload.write(block));
      bytes = bytes.subspan(block.size());
    }
    return Ok{};
  }

  Status verify(const std::string& key, const storage::ObjectInfo& written, const FileJob& job) {
    YARD_ASSIGN(const storage::ObjectInfo there, checkpoints_.store().head(key));
    const auto refuse = [&](std::string_view why) {
      return Error{Code::kCorrupt, fmt::format("{}: {}", checkpoints_.url_of(key), why)};
    };
    if (there.size_bytes != job.record.size_bytes || there.etag != written.etag)
      return refuse("is not as it was written");
    if (!options_.read_back) return Ok{};
    for (size_t i = 0; i < job.chunks.size(); ++i) {
      const auto bytes = bytes_[job.chunks[i]];
      std::vector<std::byte> read(std::min<size_t>(kBlockBytes, bytes.size()));
      for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
        const auto block = bytes.subspan(at, std::min<size_t>(kBlockBytes, bytes.size() - at));
        const auto out = std::span(read).first(block.size());
        YARD_TRY(
            checkpoints_.store().get_range(key, there.etag, job.chunk_records[i].offset + at, out));
        if (!std::ranges::equal(block, out)) return refuse("is not what was written");
      }
    }
    return Ok{};
  }

  const CheckpointStore& checkpoints_;
  const RankFiles& where_;
  const Layout& layout_;
  const std::span<const std::span<const std::byte>> bytes_;
  const FileWriterOptions& options_;
};

}  // namespace

Result<WrittenFiles> write_rank_files(const CheckpointStore& checkpoints, const RankFiles& where,
                                      const Layout& layout, const std::vector<bool>& owned,
                                      std::span<const std::span<const std::byte>> bytes,
                                      const FileWriterOptions& options) {
  std::vector<FileJob> jobs;
  const auto cut = cut_into_files(layout, file_order(layout, owned), options.files);
  for (size_t i = 0; i < cut.size(); ++i) {
    const std::string name = data_file_name(where.id, where.rank, where.world_size, i);
    jobs.push_back({.chunks = cut[i], .record = {.name = name}});
  }
  Writer writer(checkpoints, where, layout, bytes, options);
  {
    storage::WorkQueue queue(
        std::clamp(static_cast<int>(jobs.size()), 1, std::max(1, options.writer_count)));
    for (FileJob& job : jobs) queue.push([&] { job.outcome = writer.write(job); });
  }
  WrittenFiles written;
  Status status = Ok{};
  for (size_t i = 0; i < jobs.size(); ++i) {
    written.files.push_back(jobs[i].record);
    for (size_t k = 0; k < jobs[i].chunk_records.size(); ++k) {
      jobs[i].chunk_records[k].file_index = static_cast<uint32_t>(i);
      written.chunks.push_back({jobs[i].chunks[k], std::move(jobs[i].chunk_records[k])});
    }
    if (status && !*jobs[i].outcome) status = *jobs[i].outcome;
  }
  if (status) return written;
  remove_rank_files(checkpoints, where.step, written.files);
  return std::move(status).error();
}

void remove_rank_files(const CheckpointStore& checkpoints, int64_t step,
                       const std::vector<FileRecord>& files) {
  std::vector<std::string> keys;
  for (const FileRecord& file : files) keys.push_back(checkpoints.folder_of(step) + file.name);
  if (Status removed = checkpoints.store().remove_all(keys); !removed)
    log_warning("files of a save that failed stay until the next sweep: {}",
                removed.error().message);
}

}  // namespace yard::checkpoint
