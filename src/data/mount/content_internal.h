// The parts of Content.
#pragma once

#include "mount/content.h"

namespace yard::mount {

struct Content::File {
  ObjectVersion version;
  std::map<uint64_t, PartPointer> parts;  // by offset; they do not overlap
  int open_count = 0;
  std::optional<Error> failure;  // the version is gone
};

struct Content::Part {
  FilePointer file;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  const Handle* owner = nullptr;  // whose window it belongs to; null: asked for by a read
  Memory::Buffer buffer;
  // Bytes from its start that are there. Written by the fetching thread only, under the mutex.
  uint64_t filled_bytes = 0;
  uint64_t served_bytes = 0;
  bool is_started = false;
  bool is_done = false;
  bool is_erased = false;
  std::atomic<bool> is_abandoned = false;  // nobody will read it
  Reads waiters;
  std::list<PartPointer>::iterator recent;
};

struct Content::Handle {
  explicit Handle(FilePointer opened) : file(std::move(opened)) {}
  const FilePointer file;
  ReadAhead read_ahead;
  uint64_t window_bytes = 0;
  uint64_t ahead_end = 0;  // of what was fetched ahead
};

struct Content::Piece {
  PartPointer part;
  uint64_t begin = 0;  // within the part
  uint64_t end = 0;
};

struct Content::Read {
  std::shared_ptr<Handle> handle;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  Done done;
  std::vector<Piece> pieces;
  size_t missing_count = 0;
  bool is_late = false;
  bool is_over = false;  // on its way to done()
  std::optional<Error> error;
  Clock::Monotonic begun{};
};

}  // namespace yard::mount
