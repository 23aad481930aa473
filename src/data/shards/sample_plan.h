// SamplePlan: which sample stands where in an epoch. Pure: no I/O, no state, the same on every
// rank.
//
// Samples are numbered over the whole data set: shards by name, samples in shard order. Held-out
// samples are chosen first, once for ever; the others, the training samples, are shuffled anew each
// epoch. A global batch is the next `global_batch_size` of them, and a rank's share a slice of it,
// so the sequence of global batches does not depend on the world size and a run may stop after any
// batch and go on with another number of ranks: each sample is still used once in the epoch.
//
// The shuffle is a full permutation of a small data set. Of a larger one it is bounded, so that
// storage sees runs of neighbours: blocks of `block_size` neighbouring samples are permuted over
// the whole epoch, then samples within windows of `window_size`. Where blocks begin moves with the
// epoch, so that neighbours change.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace yard::shards {

struct SamplePlanOptions {
  uint64_t seed = 0;
  uint64_t sample_count = 0;  // of the data set, the held-out ones too
  uint64_t held_out_count = 0;
  uint64_t global_batch_size = 1;
  uint64_t block_size = 256;      // samples read in sequence
  uint64_t window_size = 16'384;  // samples; a multiple of block_size
};

// Immutable, thread-safe. Everything below is O(1), with O(log held_out_count) for the exclusion.
class SamplePlan {
 public:
  // kInvalidArgument: no training samples left, a batch larger than they are, sizes of zero.
  static Result<SamplePlan> create(const SamplePlanOptions& options);

  uint64_t training_count() const { return training_count_; }
  // Whole global batches: the last training_count() % global_batch_size of an epoch's order are
  // left out of it; which ones they are changes with the epoch.
  uint64_t batches_per_epoch() const { return training_count_ / options_.global_batch_size; }

  // The sample at `position` of the epoch's order; position < training_count().
  uint64_t sample_at(uint64_t epoch, uint64_t position) const;

  // The first position of a rank's share of a global batch, and its size: global_batch_size /
  // world_size. world_size must divide the batch.
  struct Share {
    uint64_t begin = 0;
    uint64_t count = 0;
  };
  Share share(uint64_t batch, uint64_t rank, uint64_t world_size) const;

  // The i-th held-out sample: depends on sample_count alone, not even on the seed.
  uint64_t held_out(uint64_t i) const;

 private:
  explicit SamplePlan(const SamplePlanOptions& options);
  // The sample with that number among the training samples, in the order of the data set.
  uint64_t training_sample(uint64_t number) const;
  uint64_t shuffled(uint64_t epoch, uint64_t position) const;

  SamplePlanOptions options_;
  uint64_t training_count_ = 0;
  // held_out_before_[i]: training samples that come before the i-th smallest held-out sample.
  std::vector<uint64_t> held_out_before_;
};

}  // namespace yard::shards
