// Commits: a set of objects that readers see whole or not at all.
//
//   YARD_ASSIGN(Commit commit, Commit::begin(store, "run/step-7"));
//   YARD_TRY(commit.put("weights", bytes));           // or upload(), for large ones
//   YARD_TRY(commit.publish({{"step", 7}}));            // now "run/step-7" is there, with its
//   parts
//   ...
//   YARD_ASSIGN(Manifest manifest, read_manifest(store, "run/step-7"));
//   YARD_ASSIGN(std::string bytes, read_part(store, *manifest.find("weights")));
//
// Parts are written under keys of their own, "<key>.parts/<id>/<name>"; publish() verifies that
// each is there as it was written, then puts one object, the manifest, under `key`. That put is
// atomic, so a reader sees the parts of the manifest before or of this one. Whoever dies in between
// leaves parts that no manifest names: sweep_parts() removes them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "storage/object_store.h"

namespace yard::storage {

struct ManifestPart {
  std::string name;  // as the writer gave it
  std::string key;   // of its object
  std::string etag;
  uint64_t size_bytes = 0;
  uint32_t crc32c = 0;
};

struct Manifest {
  std::string id;                   // of the commit
  std::vector<ManifestPart> parts;  // in the order they were written
  Json note;                        // the writer's own

  const ManifestPart* find(std::string_view name) const;  // nullptr: there is none
};

struct CommitOptions {
  // Somebody else's manifest under `key` is kept, and publish() fails with kInvalidArgument. Else
  // the last one counts.
  bool if_absent = false;
  // Reads every part back before the manifest is put, for stores that are not to be believed.
  bool read_back = false;
};

// Not thread-safe; its uploads may be written from other threads, one each. Destroyed before
// publish() was begun, it removes its parts; after a publish() that failed it does so only where
// the manifest is known not to be there.
class Commit {
 public:
  // `store` must outlive the commit. kInvalidArgument: `key` or a part's key would be none.
  static Result<Commit> begin(ObjectStore& store, std::string_view key,
                              const CommitOptions& options = {});
  Commit(Commit&&) noexcept;
  ~Commit();

  // One part. kInvalidArgument: the name is there already, or no key. Of upload()'s parts those
  // count that were committed.
  Status put(std::string_view name, std::span<const std::byte> content);
  Result<std::unique_ptr<Upload>> upload(std::string_view name, const PutOptions& options = {});

  // Call at most once, last; `note` is kept in the manifest. kCorrupt: a part is not as it was
  // written. kUnavailable and kDeadlineExceeded: whether the manifest is there is not known; it is
  // whole or not there at all.
  Status publish(const Json& note = Json::object());

 private:
  struct Impl;
  class PartUpload;
  explicit Commit(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// kNotFound: there is none; kCorrupt: it is damaged.
Result<Manifest> read_manifest(ObjectStore& store, std::string_view key);
// The whole part, checked against its checksum. kCorrupt: it is another, or gone.
Result<std::string> read_part(ObjectStore& store, const ManifestPart& part);

// Removes parts of `key` that its manifest does not name, of commits of which nothing was written
// for `age_min`: one that is under way must not lose its parts. How many objects were removed.
Result<uint64_t> sweep_parts(ObjectStore& store, std::string_view key, std::chrono::seconds age_min,
                             const Clock& clock = Clock::real());

}  // namespace yard::storage
