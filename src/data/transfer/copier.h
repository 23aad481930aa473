// Copier: copies many objects at once between stores and folders, whole or not at all.
//
//   Copier copier({.transfer = {.memory_bytes_max = 256 << 20}}, [](const auto& copy, ...) {...});
//   for (...) copier.add({.source = store, .info = info, .target_path = "/data/x"});
//   copier.finish();
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/buffer_pool.h"
#include "storage/object_store.h"
#include "storage/parallel_get.h"
#include "storage/transfer_pool.h"
#include "transfer/partial_file.h"

namespace yard::transfer {

// One object and where it goes: a file, or a key of a store.
struct Copy {
  std::shared_ptr<storage::ObjectStore> source;
  storage::ObjectInfo info;  // as head() or list() gave it; its etag is the version that is copied
  std::string target_path;   // a file; its folders are made
  std::shared_ptr<storage::ObjectStore> target;  // unless target_path is set
  std::string target_key;

  std::string source_url() const;
  std::string target_url() const;  // the path as it is
};

struct CopierOptions {
  storage::TransferOptions transfer;
  bool sync = false;       // wait until a file is on the disk
  bool if_absent = false;  // PutOptions::if_absent, for files as well
};

struct CopyProgress {
  std::atomic<uint64_t> bytes_total = 0;
  std::atomic<uint64_t> bytes_done = 0;
  std::atomic<uint64_t> objects_total = 0;
  std::atomic<uint64_t> objects_done = 0;  // well or not
  std::atomic<uint64_t> objects_failed = 0;
};

// add() and finish() from one thread; progress() from any. The destructor finishes.
//
// Files come in parts under a hidden name (partial_file.h) and take their place when all bytes are
// there and have the checksum that the store names. What was broken off by a kill, a stop, or a
// store that went away is gone on with by the next copy of the same version to the same path; after
// any other error nothing stays. Stores get an object by put() or upload(), so they never show half
// of one. Between two stores of one service the service copies.
class Copier {
 public:
  // Called once for each copy, on any thread, one at a time.
  using Done = std::function<void(const Copy& copy, const Status& status)>;

  Copier(CopierOptions options, Done done);
  ~Copier();

  // Blocks while many large objects are under way.
  void add(Copy copy);
  // Waits for all; the first error.
  Status finish();
  const CopyProgress& progress() const { return progress_; }

 private:
  struct Receiving;

  void receive(const std::shared_ptr<Copy>& copy);
  Status receive_small(const Copy& copy);
  void receive_large(const std::shared_ptr<Copy>& copy);
  void receive_part(const std::shared_ptr<Receiving>& file, size_t index);
  Status fetch_part(Receiving& file, size_t index);
  Status check_part(Receiving& file, size_t index);
  void end_part(const std::shared_ptr<Receiving>& file);
  Status finish_file(Receiving& file);
  void send(const std::shared_ptr<Copy>& copy);
  Status send_small(const Copy& copy);
  Status send_large(const Copy& copy);
  Status send_remote(const Copy& copy, storage::Upload& upload);
  Status send_local(const Copy& copy, storage::Upload& upload);
  Status check_not_stopped(const Copy& copy) const;
  Status copy_in_service(const Copy& copy);
  Status prepare_path(const std::string& path);
  Status make_folder_of(const std::string& path);
  void end(const Copy& copy, const Status& status);

  const CopierOptions options_;
  const Done done_;
  const std::string boot_id_;
  CopyProgress progress_;
  storage::BufferPool buffers_;
  std::mutex done_mutex_;
  std::optional<Error> first_error_;
  std::mutex folders_mutex_;
  std::set<std::string> folders_;
  static constexpr int kLargeCountMax = 64;
  std::counting_semaphore<kLargeCountMax> large_room_{kLargeCountMax};
  storage::TransferPool pool_;  // last: its threads use the others
};

}  // namespace yard::transfer
