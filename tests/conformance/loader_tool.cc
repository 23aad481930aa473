// A rank that reads shards, for tests/faults/test_loader_kills.py to kill: one JSON object is its
// argument, every batch becomes a line of its standard output, its state a file.
//
//   {"folder", "state", "rank", "world_size", "global_batch_size", "epochs", "seed", "threads"}
//   -> {"epoch", "batch", "ids", "pixels"}   `ids` without what only fills up the epoch's end
#include <algorithm>
#include <iostream>
#include <string>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/json.h"
#include "loader/loader.h"
#include "storage/directory_store.h"

namespace yard::loader {
namespace {

Result<LoaderState> read_state(const std::string& path) {
  auto text = read_file(path);
  if (!text && text.error().code == Code::kNotFound) return LoaderState{};
  if (!text) return std::move(text).error();
  YARD_ASSIGN(const Json json, parse_json(*text, path));
  return LoaderState{json.at("epoch"), json.at("batch")};
}

Json line_of(const Batch& batch) {
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < batch.sample_ids.size(); ++i)
    if (batch.is_padding[i] == 0) ids.push_back(batch.sample_ids[i]);
  return {{"epoch", batch.position.epoch},
          {"batch", batch.position.batch},
          {"ids", ids},
          {"pixels", crc32c(batch.images.bytes())}};
}

Status run(const Json& in) {
  YARD_ASSIGN(const auto store, storage::DirectoryStore::open(in.at("folder")));
  LoaderOptions options;
  YARD_ASSIGN(const auto objects, storage::list_all(*store, ""));
  for (const auto& object : objects)
    if (object.key.ends_with(".tar")) options.shards.push_back(object.key);
  options.seed = in.at("seed");
  options.rank = in.at("rank");
  options.world_size = in.at("world_size");
  options.global_batch_size = in.at("global_batch_size");
  options.thread_count = in.at("threads");
  options.ends = shards::EndPolicy::kPad;
  options.image_size = 2;
  options.random_flip = true;
  const std::string path = in.at("state");
  YARD_ASSIGN(const LoaderState start, read_state(path));
  CounterRegistry counters;
  YARD_ASSIGN(const auto loader, Loader::open(*store, options, start, counters));
  const uint64_t epochs = in.at("epochs");
  for (;;) {
    YARD_ASSIGN(const Batch batch, loader->next({}));
    if (batch.position.epoch >= epochs) return Ok{};
    std::cout << line_of(batch).dump() << std::endl;
    // The next batch; as with checkpoints what was done since then is done again.
    const Json state = {{"epoch", batch.position.epoch}, {"batch", batch.position.batch + 1}};
    YARD_TRY(write_file_atomic(path, state.dump()));
  }
}

}  // namespace
}  // namespace yard::loader

int main(int argument_count, char** arguments) {
  YARD_CHECK(argument_count == 2);
  const auto in = yard::parse_json(arguments[1], "argument");
  YARD_CHECK(in.has_value());
  const yard::Status done = yard::loader::run(*in);
  if (done) return 0;
  std::cerr << done.error().message << "\n";
  return 1;
}
