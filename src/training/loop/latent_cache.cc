#include "loop/latent_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/std.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"
#include "loop/agreement.h"
#include "shards/sample_plan.h"
#include "tensor/autocast.h"
#include "tensor/host_tensor.h"

namespace yard::loop {
namespace {

// Samples encoded by one call. Part of what the result is: kernels may sum in another order for
// another batch.
constexpr int64_t kBlockSize = 16;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

int64_t samples_per_rank(int64_t count, int ranks) {
  const int64_t blocks = (count + kBlockSize - 1) / kBlockSize;
  return (blocks + ranks - 1) / ranks * kBlockSize;
}

Range share_of(int64_t count, const collective::Group& group) {
  const int64_t per_rank = samples_per_rank(count, group.size());
  const int64_t begin = std::min(count, per_rank * group.rank());
  return {begin, std::min(count, begin + per_rank)};
}

// Reads `count` samples of a loader that gives one at a time.
struct Block {
  std::vector<at::Tensor> pictures;
  std::vector<std::string> captions;
  std::vector<int64_t> ids;
};

Result<Block> read_block(loader::Loader& loader, int64_t count, const StopToken& stop) {
  Block block;
  for (int64_t i = 0; i < count; ++i) {
    YARD_ASSIGN(loader::Batch one, loader.next(stop));
    block.pictures.push_back(pictures_of(one));
    block.captions.push_back(one.captions.front());
    block.ids.push_back(static_cast<int64_t>(one.sample_ids.front()));
    loader.recycle(std::move(one.images));
  }
  return block;
}

// This rank's share, into its places of a cache that is as long as all shares together.
class ShareEncoder {
 public:
  ShareEncoder(const Networks& networks, Samples& samples, const CaptionTokenizer* tokenizer,
               const EncodeOptions& options)
      : networks_(networks), samples_(samples), tokenizer_(tokenizer), options_(options) {}

  LatentCache make_cache(int64_t length) const {
    const int64_t side = options_.resolution / networks_.factors().autoencoder;
    return {at::zeros({length, networks_.autoencoder()->config().latent_channels, side, side}),
            at::zeros({length, static_cast<int64_t>(token_count())}, at::kLong),
            at::zeros({length}, at::kLong)};
  }

  Status encode(Range range, LatentCache& out, const StopToken& stop) {
    if (range.count() == 0) return Ok{};
    YARD_ASSIGN(auto loader, samples_.one_by_one(options_.resolution, range.begin));
    for (int64_t begin = range.begin; begin < range.end; begin += kBlockSize) {
      // The loader, faster than we are, always has a sample ready and never looks.
      if (stop.stopped()) return Error{Code::kCancelled, "encoding samples was stopped"};
      const int64_t count = std::min(kBlockSize, range.end - begin);
      YARD_ASSIGN(const Block block, read_block(*loader, count, stop));
      put(block, begin, out);
    }
    return Ok{};
  }

 private:
  void put(const Block& block, int64_t begin, LatentCache& out) const {
    const auto count = static_cast<int64_t>(block.ids.size());
    out.latents.narrow(0, begin, count)
        .copy_(encode_latents(*networks_.autoencoder(), at::cat(block.pictures),
                              networks_.scaling_factor(), options_.bf16));
    out.ids.narrow(0, begin, count)
        .copy_(tensor::copy_of(std::span<const int64_t>(block.ids), {count}));
    if (token_count() == 0) return;
    out.tokens.narrow(0, begin, count).copy_(tokenizer_->ids(block.captions));
  }
  size_t token_count() const { return tokenizer_ == nullptr ? 0 : tokenizer_->id_count(); }

  const Networks& networks_;
  Samples& samples_;
  const CaptionTokenizer* tokenizer_;
  const EncodeOptions& options_;
};

Status gather(at::Tensor& all, int64_t per_rank, collective::Group& group) {
  if (all.numel() == 0) return Ok{};
  const at::Tensor mine = all.narrow(0, per_rank * group.rank(), per_rank);
  return group.all_gather(tensor::bytes_of(mine), tensor::bytes_of(all))->wait();
}

class CachedSteps final : public StepSource {
 public:
  CachedSteps(LatentCache cache, shards::SamplePlan plan, const StageRecipe& stage, RankPlace place,
              loader::LoaderState start, Samples* sizes_of)
      : cache_(std::move(cache)),
        plan_(std::move(plan)),
        resolution_(stage.resolution),
        place_(place),
        position_(start),
        sizes_of_(sizes_of) {}

  Result<StepData> next() override {
    const auto share = plan_.share(position_.batch, static_cast<uint64_t>(place_.rank),
                                   static_cast<uint64_t>(place_.size));
    std::vector<int64_t> rows;
    for (uint64_t i = 0; i < share.count; ++i)
      rows.push_back(static_cast<int64_t>(plan_.sample_at(position_.epoch, share.begin + i)));
    const at::Tensor index =
        tensor::copy_of(std::span<const int64_t>(rows), {static_cast<int64_t>(rows.size())});
    StepData data;
    data.latents = cache_.latents.index_select(0, index);
    data.tokens = cache_.tokens.index_select(0, index);
    const int64_t* ids = cache_.ids.const_data_ptr<int64_t>();
    for (const int64_t row : rows) {
      data.ids.push_back(static_cast<uint64_t>(ids[row]));
      data.keys.push_back(fmt::format("sample {}", ids[row]));
    }
    if (sizes_of_ != nullptr) {
      YARD_ASSIGN(data.condition.sizes, sizes_of_->sizes(data.ids, resolution_, resolution_));
    }
    if (++position_.batch == plan_.batches_per_epoch()) position_ = {position_.epoch + 1, 0};
    return data;
  }
  double wait_seconds() const override { return 0; }
  loader::LoaderState position() const override { return position_; }

 private:
  const LatentCache cache_;
  const shards::SamplePlan plan_;
  const int64_t resolution_;
  const RankPlace place_;
  loader::LoaderState position_;
  Samples* sizes_of_;
};

}  // namespace

at::Tensor encode_latents(const models::AutoencoderKL& autoencoder, const at::Tensor& pictures,
                          double scale, bool bf16) {
  c10::NoGradGuard no_grad;
  tensor::Autocast autocast(pictures.device().type(), bf16);
  return autoencoder.encode(pictures).mean.to(at::kFloat) * scale;
}

Result<LatentCache> encode_samples(const Networks& networks, Samples& samples,
                                   const CaptionTokenizer* tokenizer, const EncodeOptions& options,
                                   collective::Group& group, const StopToken& stop) {
  YARD_ASSIGN(auto probe, samples.one_by_one(options.resolution, 0));
  int64_t count = probe->sample_count();
  probe.reset();
  if (options.sample_count_max > 0) count = std::min(count, options.sample_count_max);
  const int64_t per_rank = samples_per_rank(count, group.size());
  const int64_t side = options.resolution / networks.factors().autoencoder;
  const auto size_bytes = static_cast<uint64_t>(
      count * networks.autoencoder()->config().latent_channels * side * side * 4);
  if (options.size_bytes_max > 0 && size_bytes > options.size_bytes_max)
    return Error{Code::kExhausted,
                 fmt::format("latents of {} samples need {}, data.latent_cache is {}: raise it or "
                             "set cache_latents to false",
                             count, format_size_bytes(size_bytes),
                             format_size_bytes(options.size_bytes_max))};
  ShareEncoder encoder(networks, samples, tokenizer, options);
  LatentCache cache = encoder.make_cache(per_rank * group.size());
  const Status mine = encoder.encode(share_of(count, group), cache, stop);
  YARD_TRY(agree(group, mine, "encoding samples"));
  for (at::Tensor* part : {&cache.latents, &cache.tokens, &cache.ids})
    YARD_TRY(gather(*part, per_rank, group));
  return LatentCache{cache.latents.narrow(0, 0, count), cache.tokens.narrow(0, 0, count),
                     cache.ids.narrow(0, 0, count)};
}

double inverse_deviation(const LatentCache& cache) {
  return 1 / at::std(cache.latents.to(at::kDouble)).item<double>();
}

Result<std::unique_ptr<StepSource>> cached_steps(LatentCache cache, const StageRecipe& stage,
                                                 uint64_t stage_seed, RankPlace place,
                                                 loader::LoaderState start, Samples* sizes_of) {
  YARD_ASSIGN(auto plan, shards::SamplePlan::create(
                             {.seed = stage_seed,
                              .sample_count = static_cast<uint64_t>(cache.ids.numel()),
                              .global_batch_size = static_cast<uint64_t>(stage.batch)}));
  return std::unique_ptr<StepSource>(std::make_unique<CachedSteps>(
      std::move(cache), std::move(plan), stage, place, start, sizes_of));
}

}  // namespace yard::loop
