// SamplePlan: which samples make up each global batch of each epoch. Pure: no I/O, no state, the
// same on every rank.
//
// Samples are numbered over the whole data set: shards by name, samples in shard order. Held-out
// samples are chosen first, once for ever; the others, the training samples, are shuffled anew each
// epoch (epoch_shuffle_internal.h). A rank takes a slice of each global batch, so the sequence of
// global batches does not depend on the world size and a run may stop after any batch and go on
// with another number of ranks: each sample is still used once in the epoch.
//
// Buckets: every batch is of one bucket (pictures of one aspect ratio, say); each bucket is
// shuffled by itself, and so are the batches of all buckets over the epoch.
//
// Sources: batches are mixed from several sources by weight. Each source goes through epochs of its
// own, in each of which every sample is used once; of every 4,096 samples in sequence (batches,
// where there are buckets, too) each source gives its exact share. An epoch of the mix is as many
// batches as all its samples would fill.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "shards/epoch_shuffle_internal.h"

namespace yard::shards {

// What becomes of the samples at the end of an epoch (of each bucket) that fill no whole batch.
enum class EndPolicy {
  kDrop,  // left out; which ones they are changes with the epoch
  kPad,   // their batch is filled up with others, which are marked
  kWrap,  // their batch is filled up with the first ones of the same epoch
};

struct WeightedSource {
  uint64_t sample_count = 0;
  double weight = 1;  // its share of all samples given, over the sum of weights
};

struct SamplePlanOptions {
  uint64_t seed = 0;
  uint64_t sample_count = 0;  // of the data set, the held-out ones too
  uint64_t held_out_count = 0;
  uint64_t global_batch_size = 1;
  uint64_t block_size = 256;      // samples read in sequence
  uint64_t window_size = 16'384;  // samples; a multiple of block_size
  bool shuffle = true;            // false: every epoch in the order of the data set
  EndPolicy ends = EndPolicy::kDrop;
  // The bucket of each sample; empty: all in one. kLeftOut: never used, not even held out.
  std::vector<uint32_t> buckets;
  static constexpr uint32_t kLeftOut = UINT32_MAX;
  // Consecutive parts of the data set; empty: it is one source. With several, epochs have no end
  // that could be uneven.
  std::vector<WeightedSource> sources;
};

// Immutable, thread-safe. Everything below is O(1), with O(log) of held-out samples, buckets and
// sources.
class SamplePlan {
 public:
  // kInvalidArgument: no training samples left, no whole batch with kDrop, sizes of zero, a source
  // without samples or of a weight that is not positive (or over 4,096 times under the others'),
  // sources or buckets that are not those of sample_count samples.
  static Result<SamplePlan> create(const SamplePlanOptions& options);

  uint64_t training_count() const { return training_count_; }
  uint64_t batches_per_epoch() const { return batches_per_epoch_; }
  // Training samples in buckets that are too small for a batch, with kDrop.
  uint64_t unused_count() const;

  struct Place {
    uint64_t sample = 0;
    bool is_padding = false;
  };
  // The i-th sample of a global batch. attempt: which one in its stead, after so many that were
  // bad: those that follow in its bucket and source.
  Place at(uint64_t epoch, uint64_t batch, uint64_t i, uint64_t attempt = 0) const;
  uint32_t bucket(uint64_t epoch, uint64_t batch) const;  // the first sample's

  // The sample at `position` of the epoch's order; position < training_count(). Contract: one
  // source, one bucket.
  uint64_t sample_at(uint64_t epoch, uint64_t position) const;

  // The end of the window of the shuffle that a position lies in: the samples of a window are runs
  // of neighbours. Contract as sample_at(); positions past the epoch's end are in the last one.
  uint64_t window_end(uint64_t position) const;

  // The first position of a rank's share of a global batch, counted from the epoch's start, and
  // its size: global_batch_size / world_size. world_size must divide the batch.
  struct Share {
    uint64_t begin = 0;
    uint64_t count = 0;
  };
  Share share(uint64_t batch, uint64_t rank, uint64_t world_size) const;

  // The i-th held-out sample: depends on the data set alone, not even on the seed.
  uint64_t held_out(uint64_t i) const;

 private:
  // Samples that are shuffled together: one bucket of one source.
  struct Group {
    uint32_t bucket = 0;
    uint64_t first = 0;  // consecutive training numbers from here, unless `numbers` has them
    std::vector<uint64_t> numbers;
    uint64_t batch_count = 0;
    EpochShuffle shuffle;
  };
  struct Source {
    std::vector<Group> groups;         // by bucket
    std::vector<uint64_t> batch_ends;  // sums of the groups' batch_count
    uint64_t seed = 0;
    uint64_t sample_count = 0;  // training samples
    uint64_t share_begin = 0;   // of kMixPeriod
    uint64_t share_size = 0;
  };
  // A position in a group's epoch; it may lie past its end.
  struct Spot {
    const Group* group = nullptr;
    uint64_t epoch = 0;
    uint64_t position = 0;
  };

  explicit SamplePlan(const SamplePlanOptions& options);
  Status set_usable();
  Status set_groups();
  Status set_shares();
  Group group_of(const Source& source, uint32_t bucket, uint64_t count) const;
  uint64_t batch_count_of(uint64_t sample_count) const;
  uint64_t sample_of(uint64_t training_number) const;
  std::pair<const Source*, uint64_t> mixed(uint64_t unit) const;
  Spot locate(uint64_t epoch, uint64_t batch, uint64_t i) const;
  Spot locate_in(const Source& source, uint64_t epoch, uint64_t batch, uint64_t i) const;

  SamplePlanOptions options_;
  uint64_t usable_count_ = 0;
  std::vector<uint64_t> usable_;  // the samples that are not left out; empty: all are usable
  uint64_t training_count_ = 0;
  uint64_t batches_per_epoch_ = 0;
  std::vector<Source> sources_;
  // held_out_before_[i]: training samples that come before the i-th smallest held-out sample.
  std::vector<uint64_t> held_out_before_;
};

}  // namespace yard::shards
