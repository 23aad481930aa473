#include "transfer/copier.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <filesystem>

#include "storage/directory_store.h"
#include "storage/s3_store.h"

namespace yard::transfer {
namespace {

using storage::ObjectInfo;
using storage::ObjectStore;

constexpr uint64_t kLargeBytes = 8 << 20;    // from here on, in parts
constexpr uint64_t kSendBytes = 8 << 20;     // in memory at once of a large object on its way
constexpr uint64_t kPieceBytes = 512 << 10;  // in memory at once of a part on its way into a file

// Errors that a later run may go on behind.
bool is_passing(Code code) {
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kCancelled;
}

storage::TransferOptions limited(const storage::TransferOptions& options, uint64_t memory_bytes) {
  storage::TransferOptions limited = options;
  limited.memory_bytes_max = std::min(options.memory_bytes_max, memory_bytes);
  return limited;
}

}  // namespace

std::string Copy::source_url() const {
  const std::string url = source->url();
  // A folder's as a path, which needs no encoding and can be given to the same command again.
  const auto path = url.starts_with("file://") ? storage::path_of_url(url) : Result(url);
  return fmt::format("{}/{}", path ? *path : url, info.key);
}

std::string Copy::target_url() const {
  return target ? fmt::format("{}/{}", target->url(), target_key) : target_path;
}

// A large object on its way into a file.
struct Copier::Receiving {
  Receiving(std::shared_ptr<Copy> wanted, PartialFile opened, std::string_view checksum)
      : copy(std::move(wanted)), file(std::move(opened)), checksums(checksum) {}

  void fail(const Error& reason) {
    const std::lock_guard lock(mutex);
    if (!error) error = reason;
  }
  bool has_failed() {
    const std::lock_guard lock(mutex);
    return error.has_value();
  }

  const std::shared_ptr<Copy> copy;
  PartialFile file;
  storage::PartChecksums checksums;
  std::atomic<size_t> parts_left = 0;
  std::mutex mutex;
  std::optional<Error> error;
};

Copier::Copier(CopierOptions options, Done done)
    : options_(std::move(options)),
      done_(std::move(done)),
      boot_id_(current_boot_id()),
      pool_(options_.transfer) {}

Copier::~Copier() {
  pool_.wait_until_idle();
}

void Copier::add(Copy copy) {
  progress_.bytes_total += copy.info.size_bytes;
  ++progress_.objects_total;
  auto shared = std::make_shared<Copy>(std::move(copy));
  if (shared->target)
    send(shared);
  else
    receive(shared);
}

Status Copier::finish() {
  pool_.wait_until_idle();
  const std::lock_guard lock(done_mutex_);
  if (first_error_) return *first_error_;
  return Ok{};
}

void Copier::end(const Copy& copy, const Status& status) {
  const std::lock_guard lock(done_mutex_);
  ++progress_.objects_done;
  if (!status) {
    ++progress_.objects_failed;
    if (!first_error_) first_error_ = status.error();
  }
  if (done_) done_(copy, status);
}

Status Copier::make_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) return Ok{};
  {
    const std::lock_guard lock(folders_mutex_);
    if (folders_.contains(folder)) return Ok{};
  }
  YARD_TRY(make_directories(folder));
  const std::lock_guard lock(folders_mutex_);
  folders_.insert(folder);
  return Ok{};
}

// ---- into files

Status Copier::prepare_path(const std::string& path) {
  struct stat info = {};
  if (options_.if_absent && ::lstat(path.c_str(), &info) == 0) return already_exists_error(path);
  // A file that took the name of /dev/null, or of the link /dev/stdout, would harm every program.
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
    return Error{Code::kInvalidArgument, path + ": is a device, pipe or socket, not a file"};
  return make_folder_of(path);
}

void Copier::receive(const std::shared_ptr<Copy>& copy) {
  const auto cancelled = [this, copy] {
    end(*copy, Error{Code::kCancelled, copy->source_url() + ": stopped"});
  };
  const uint64_t size_bytes = copy->info.size_bytes;
  if (size_bytes <= kLargeBytes) {
    const auto task = [this, copy, size_bytes]() -> Result<uint64_t> {
      const Status status = receive_small(*copy);
      end(*copy, status);
      if (!status) return status.error();
      return size_bytes;
    };
    pool_.push(size_bytes, task, cancelled);
    return;
  }
  large_room_.acquire();
  const auto task = [this, copy]() -> Result<uint64_t> {
    receive_large(copy);
    return uint64_t{0};
  };
  pool_.push(0, task, [this, cancelled] {
    cancelled();
    large_room_.release();
  });
}

Status Copier::receive_small(const Copy& copy) {
  YARD_TRY(prepare_path(copy.target_path));
  const auto buffer = buffers_.take(copy.info.size_bytes);
  YARD_TRY(copy.source->get_object(copy.info, buffer.span()));
  YARD_ASSIGN(PartialFile file,
              PartialFile::open(copy.target_path,
                                {copy.source_url() + " " + copy.info.etag, copy.info.size_bytes,
                                 std::bit_ceil(std::max<uint64_t>(copy.info.size_bytes, 1))},
                                {}));
  const auto write = [&]() -> Status {
    if (copy.info.size_bytes > 0) {
      YARD_TRY(file.write(0, 0, buffer.span()));
      YARD_TRY(file.mark_part(0));
    }
    return file.finish(
        {.modified = copy.info.modified, .sync = options_.sync, .if_absent = options_.if_absent});
  };
  auto written = write();
  if (!written) file.discard();
  progress_.bytes_done += copy.info.size_bytes;
  return written;
}

// Opens the file and queues what is missing of it.
void Copier::receive_large(const std::shared_ptr<Copy>& copy) {
  const auto open = [&]() -> Result<std::shared_ptr<Receiving>> {
    YARD_TRY(prepare_path(copy->target_path));
    if (copy->source->speed().is_remote && copy->info.checksum.empty()) {
      YARD_ASSIGN(ObjectInfo info, copy->source->head(copy->info.key));
      if (info.etag == copy->info.etag) copy->info.checksum = std::move(info.checksum);
    }
    const uint64_t part_bytes = storage::choose_part_bytes(
        copy->source->speed(), copy->info.size_bytes, options_.transfer.memory_bytes_max);
    YARD_ASSIGN(PartialFile file, PartialFile::open(copy->target_path,
                                                    {copy->source_url() + " " + copy->info.etag,
                                                     copy->info.size_bytes, part_bytes},
                                                    boot_id_));
    return std::make_shared<Receiving>(copy, std::move(file), copy->info.checksum);
  };
  auto opened = open();
  if (!opened) {
    end(*copy, opened.error());
    large_room_.release();
    return;
  }
  const std::shared_ptr<Receiving> file = *std::move(opened);
  const size_t part_count = file->file.part_count();
  file->parts_left = part_count;
  for (size_t i = 0; i < part_count; ++i)
    pool_.push(
        std::min(file->file.part_size_bytes(i), kPieceBytes),
        [this, file, i]() -> Result<uint64_t> {
          const bool was_there = file->file.has_part(i);
          receive_part(file, i);
          const uint64_t moved = was_there ? 0 : file->file.part_size_bytes(i);
          std::optional<Error> error;
          {
            const std::lock_guard lock(file->mutex);
            error = file->error;
          }
          end_part(file);
          if (error) return *error;
          return moved;
        },
        [this, file] {
          file->fail({Code::kCancelled, file->copy->source_url() + ": stopped"});
          end_part(file);
        });
}

void Copier::receive_part(const std::shared_ptr<Receiving>& file, size_t index) {
  if (file->has_failed()) return;
  auto received = file->file.has_part(index) ? check_part(*file, index) : fetch_part(*file, index);
  if (!received) return file->fail(received.error());
  progress_.bytes_done += file->file.part_size_bytes(index);
}

// Each piece goes to the file while the CPU's cache still holds it.
Status Copier::fetch_part(Receiving& file, size_t index) {
  const uint64_t offset = file.file.part_offset(index);
  const uint64_t size_bytes = file.file.part_size_bytes(index);
  std::optional<Checksum> checksum;
  const storage::RangeSink sink = [&](uint64_t position, std::span<const std::byte> piece) {
    if (file.checksums.is_usable()) {
      if (position == 0) checksum = file.checksums.start();
      checksum->update(piece);
    }
    return file.file.write(index, position, piece);
  };
  const Copy& copy = *file.copy;
  YARD_TRY(copy.source->get_range_to(copy.info.key, copy.info.etag, offset, size_bytes, sink));
  if (checksum) file.checksums.add(offset, size_bytes, *checksum);
  return file.file.mark_part(index);
}

// What an earlier run received joins the checksum of the whole.
Status Copier::check_part(Receiving& file, size_t index) {
  if (!file.checksums.is_usable()) return Ok{};
  const uint64_t size_bytes = file.file.part_size_bytes(index);
  Checksum checksum = file.checksums.start();
  const auto buffer = buffers_.take(std::min(size_bytes, kPieceBytes));
  for (uint64_t position = 0; position < size_bytes; position += kPieceBytes) {
    const auto piece = buffer.span().first(std::min(size_bytes - position, kPieceBytes));
    YARD_TRY(file.file.read(index, position, piece));
    checksum.update(piece);
  }
  file.checksums.add(file.file.part_offset(index), size_bytes, checksum);
  return Ok{};
}

void Copier::end_part(const std::shared_ptr<Receiving>& file) {
  if (--file->parts_left > 0) return;
  const Status status = finish_file(*file);
  if (!status && !is_passing(status.error().code)) file->file.discard();
  end(*file->copy, status);
  large_room_.release();
}

Status Copier::finish_file(Receiving& file) {
  if (file.error) return *file.error;
  YARD_TRY(file.checksums.check(file.copy->source_url()));
  return file.file.finish({.modified = file.copy->info.modified,
                           .sync = options_.sync,
                           .if_absent = options_.if_absent});
}

// ---- into stores

void Copier::send(const std::shared_ptr<Copy>& copy) {
  const auto* from = dynamic_cast<storage::S3Store*>(copy->source.get());
  const auto* to = dynamic_cast<storage::S3Store*>(copy->target.get());
  const bool is_in_service = from != nullptr && to != nullptr && to->same_service(*from);
  const bool is_small = copy->info.size_bytes <= kLargeBytes;
  const uint64_t memory_bytes = is_in_service ? 0
                                : is_small    ? copy->info.size_bytes
                                              : 2 * kSendBytes;  // read ahead, and the upload's own
  const auto task = [this, copy, is_in_service, is_small]() -> Result<uint64_t> {
    const Status status = is_in_service ? copy_in_service(*copy)
                          : is_small    ? send_small(*copy)
                                        : send_large(*copy);
    end(*copy, status);
    if (!status) return status.error();
    return copy->info.size_bytes;
  };
  pool_.push(memory_bytes, task, [this, copy] {
    end(*copy, Error{Code::kCancelled, copy->source_url() + ": stopped"});
  });
}

Status Copier::copy_in_service(const Copy& copy) {
  auto& to = static_cast<storage::S3Store&>(*copy.target);
  const auto& from = static_cast<const storage::S3Store&>(*copy.source);
  YARD_TRY(to.copy_from(from, copy.info.key, copy.target_key, {.if_absent = options_.if_absent}));
  progress_.bytes_done += copy.info.size_bytes;
  return Ok{};
}

Status Copier::send_small(const Copy& copy) {
  const auto buffer = buffers_.take(copy.info.size_bytes);
  YARD_TRY(copy.source->get_object(copy.info, buffer.span()));
  YARD_TRY(copy.target->put(copy.target_key, buffer.span(), {.if_absent = options_.if_absent}));
  progress_.bytes_done += copy.info.size_bytes;
  return Ok{};
}

Status Copier::send_large(const Copy& copy) {
  YARD_ASSIGN(const auto upload,
              copy.target->upload(copy.target_key, {.if_absent = options_.if_absent,
                                                    .size_bytes_hint = copy.info.size_bytes}));
  YARD_TRY(copy.source->speed().is_remote ? send_remote(copy, *upload) : send_local(copy, *upload));
  YARD_TRY(upload->commit());
  return Ok{};
}

// By several requests at once.
Status Copier::send_remote(const Copy& copy, storage::Upload& upload) {
  const auto write = [&](std::span<const std::byte> bytes) -> Status {
    YARD_TRY(check_not_stopped(copy));
    YARD_TRY(upload.write(bytes));
    progress_.bytes_done += bytes.size();
    return Ok{};
  };
  return storage::read_in_order(*copy.source, copy.info, write,
                                limited(options_.transfer, 8 * kSendBytes));
}

Status Copier::send_local(const Copy& copy, storage::Upload& upload) {
  YARD_ASSIGN(const storage::RangeReader file, copy.source->reader(copy.info.key, copy.info.etag));
  // Both may be called until the upload is over, which is before the copy is.
  const auto read = [this, &copy, file](uint64_t offset, std::span<std::byte> into) -> Status {
    YARD_TRY(check_not_stopped(copy));
    return file(offset, into);
  };
  const auto on_written = [this](uint64_t bytes) { progress_.bytes_done += bytes; };
  return upload.write_from(copy.info.size_bytes, read, on_written);
}

Status Copier::check_not_stopped(const Copy& copy) const {
  if (!options_.transfer.stop.stopped()) return Ok{};
  return Error{Code::kCancelled, copy.source_url() + ": stopped"};
}

}  // namespace yard::transfer
