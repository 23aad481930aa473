// The requests of a plan, carried out.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "base/crc32c.h"
#include "checkpoint/read_plan_internal.h"
#include "storage/buffer_pool.h"
#include "storage/transfer_pool.h"

namespace yard::checkpoint {
namespace {

// Reading a gap costs no more than the request that it saves: 20 ms of a stream of 50 MB/s, or
// what a local file's open and read cost.
constexpr uint64_t kRemoteGapBytesMax = uint64_t{1} << 20;
constexpr uint64_t kLocalGapBytesMax = uint64_t{64} << 10;
constexpr int kLocalReadersMax = 16;

class Reader {
 public:
  Reader(storage::ObjectStore& store, const std::string& folder, const CheckpointManifest& manifest,
         const ReadPlan& plan, const LoadOptions& options)
      : store_(store), folder_(folder), manifest_(manifest), plan_(plan), options_(options) {}

  Status run() {
    const bool is_remote = store_.speed().is_remote;
    const auto requests = plan_.requests(is_remote ? kRemoteGapBytesMax : kLocalGapBytesMax);
    const int cores = static_cast<int>(std::max(2U, std::thread::hardware_concurrency()));
    const int local_readers = std::min(cores, kLocalReadersMax);
    storage::TransferOptions transfers{.memory_bytes_max = options_.memory_bytes_max,
                                       .stop = options_.stop};
    if (!is_remote) transfers.transfer_count_first = transfers.transfer_count_max = local_readers;
    {
      storage::TransferPool pool(transfers);
      for (const ReadRequest& request : requests)
        pool.push(
            request.is_direct() ? 0 : request.end - request.begin,
            [this, &request] { return perform(request); },
            [this] {
              note({Code::kCancelled, store_.url() + "/" + folder_ + ": stopped"});
            });
    }
    const std::lock_guard lock(mutex_);
    if (error_) return *error_;
    return Ok{};
  }

 private:
  Result<uint64_t> perform(const ReadRequest& request) {
    {
      const std::lock_guard lock(mutex_);
      if (error_) return uint64_t{0};
    }
    Status read = request.is_direct() ? read_direct(request) : read_spread(request);
    if (!read) {
      note(read.error());
      return std::move(read).error();
    }
    if (options_.on_bytes) options_.on_bytes(request.end - request.begin);
    return request.end - request.begin;
  }

  Status read_direct(const ReadRequest& request) {
    const std::span<std::byte> out(request.pieces[0].out, request.end - request.begin);
    YARD_TRY(read_range(request, out));
    return check_block(request, request.pieces[0], out);
  }

  Status read_spread(const ReadRequest& request) {
    const auto buffer = buffers_.take(std::max(request.end - request.begin, kRequestBytesMax));
    const auto bytes = buffer.span().first(request.end - request.begin);
    YARD_TRY(read_range(request, bytes));
    const ReadPiece* checked = nullptr;
    for (const ReadPiece& piece : request.pieces) {
      const bool is_new = checked == nullptr || checked->chunk_index != piece.chunk_index ||
                          checked->block_index != piece.block_index;
      if (is_new) YARD_TRY(check_block(request, piece, bytes));
      checked = &piece;
      if (piece.out != nullptr)
        std::memcpy(piece.out, bytes.data() + (piece.begin - request.begin),
                    piece.end - piece.begin);
    }
    return Ok{};
  }

  std::string name_of(const ReadRequest& request, const ReadPiece& piece) const {
    return fmt::format("{}/{}{}: tensor '{}'", store_.url(), folder_,
                       manifest_.files[request.file_index].name,
                       plan_.chunks()[piece.chunk_index].tensor_name);
  }

  Status read_range(const ReadRequest& request, std::span<std::byte> out) {
    auto read = store_.get_range(folder_ + manifest_.files[request.file_index].name, {},
                                 request.begin, out);
    if (read) return Ok{};
    Error error = std::move(read).error();
    const std::string name = name_of(request, request.pieces[0]);
    if (error.code == Code::kNotFound) return Error{Code::kCorrupt, name + ": the file is gone"};
    if (error.code == Code::kInvalidArgument) error.code = Code::kCorrupt;  // shorter than it was
    return std::move(error).while_(name);
  }

  // The block that `piece` is of, where the request read all of it.
  Status check_block(const ReadRequest& request, const ReadPiece& piece,
                     std::span<const std::byte> bytes) const {
    const Interval block = plan_.block_of(piece);
    if (block.begin < request.begin || block.end > request.end) return Ok{};
    const auto read = bytes.subspan(block.begin - request.begin, block.size());
    const ChunkRecord& chunk = *plan_.chunks()[piece.chunk_index].record;
    if (crc32c(read) == chunk.block_crc32c[piece.block_index]) return Ok{};
    return Error{Code::kCorrupt, fmt::format("{}: the checksum of bytes {} to {} is wrong",
                                             name_of(request, piece), block.begin, block.end)};
  }

  void note(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }

  storage::ObjectStore& store_;
  const std::string& folder_;
  const CheckpointManifest& manifest_;
  const ReadPlan& plan_;
  const LoadOptions& options_;
  storage::BufferPool buffers_;
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

Status read_planned(storage::ObjectStore& store, const std::string& folder,
                    const CheckpointManifest& manifest, const ReadPlan& plan,
                    const LoadOptions& options) {
  return Reader(store, folder, manifest, plan, options).run();
}

}  // namespace yard::checkpoint
