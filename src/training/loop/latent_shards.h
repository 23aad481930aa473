// Latents on disk: what the frozen parts of a model make of a data set, computed once.
//
// A folder of WebDataset shards, one for each shard of the pictures and with as many samples in the
// same order, so that a sample keeps its number, and with it its place in every epoch and its
// noise. docs/formats/latents.md has the members. latents.json says which weights they were made
// by.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/stop_token.h"
#include "loop/networks.h"
#include "loop/samples.h"
#include "loop/weights_hash.h"

namespace yard::loop {

struct LatentOptions {
  int64_t resolution = 0;
  bool text = false;  // the captions' states too
  bool half = false;  // values in f16
  bool bf16 = false;  // computed in
  RankPlace place;    // rank r of n makes the shards r, r + n, ...
};

struct LatentReport {
  int64_t written_count = 0;  // shards
  int64_t present_count = 0;  // that were there already
  int64_t sample_count = 0;   // written
};

// Makes this rank's shards in `folder`, which is made if needed; those that are there stay, so that
// a run which was broken off goes on. Ranks need not know of each other. kInvalidArgument: `folder`
// holds latents of other weights (both hashes are named) or other options; no text encoder for
// `text`. kCancelled. `shard_done` may be empty.
Result<LatentReport> write_latents(const Networks& networks, const CaptionTokenizer* tokenizer,
                                   Samples& samples, const std::string& folder,
                                   const LatentOptions& options, const StopToken& stop,
                                   const std::function<void(const LatentReport&)>& shard_done);

// Not thread-safe. `networks` and `tokenizer` must outlive it; it, what it opened.
class LatentSet {
 public:
  // kNotFound: no such folder. kInvalidArgument: made by another autoencoder or, where its text is
  // of use, other text encoders (both hashes are named); of another resolution than the stage's;
  // shards are missing.
  static Result<std::unique_ptr<LatentSet>> open(const StageRecipe& stage, const DataRecipe& data,
                                                 const Networks& networks,
                                                 const CaptionTokenizer& tokenizer);
  ~LatentSet();

  Result<std::unique_ptr<StepSource>> steps(uint64_t stage_seed, RankPlace place,
                                            loader::LoaderState start);
  // The held-out samples [begin, begin + count).
  Result<StepData> held_out(int64_t begin, int64_t count);

 private:
  LatentSet();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::loop
