// The latents of every sample, encoded once: while the autoencoder is frozen they do not change.
#pragma once

#include <memory>

#include "base/stop_token.h"
#include "collective/collective.h"
#include "loop/networks.h"
#include "loop/samples.h"

namespace yard::loop {

struct LatentCache {
  at::Tensor latents;  // [N, C, h, w], scaled; sample i of the loader's first epoch
  at::Tensor tokens;   // [N, L] i64
  at::Tensor ids;      // [N] i64: sample ids in the data set
};

struct EncodeOptions {
  int64_t resolution = 0;
  int64_t sample_count_max = 0;  // 0: all
  uint64_t size_bytes_max = 0;   // of all latents; 0: no limit
  bool bf16 = false;
};

// Mean latents [B, C, h, w] of pictures, times `scale`. No gradient.
at::Tensor encode_latents(const models::AutoencoderKL& autoencoder, const at::Tensor& pictures,
                          double scale, bool bf16);

// Captions become tokens where there is a tokenizer. Every rank encodes a contiguous share, in
// blocks that do not depend on the number of ranks, and all get everything: the same bits for any
// world size. Collective. kExhausted: over `size_bytes_max`; kCancelled on every rank when one was
// asked to stop.
Result<LatentCache> encode_samples(const Networks& networks, Samples& samples,
                                   const CaptionTokenizer* tokenizer, const EncodeOptions& options,
                                   collective::Group& group, const StopToken& stop);

// 1 / standard deviation of the cache's latents, whatever scale they have.
double inverse_deviation(const LatentCache& cache);

// The steps of a stage out of the cache, shuffled anew each epoch; whole batches only.
// kInvalidArgument: fewer samples than a batch. `sizes_of`: null where no sizes are wanted; must
// outlive the source.
Result<std::unique_ptr<StepSource>> cached_steps(LatentCache cache, const StageRecipe& stage,
                                                 uint64_t stage_seed, RankPlace place,
                                                 loader::LoaderState start, Samples* sizes_of);

}  // namespace yard::loop
