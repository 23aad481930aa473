#include "loop/samples.h"

#include <ATen/ops/empty.h>

#include <chrono>
#include <span>

#include "shards/sample_plan.h"
#include "tensor/host_tensor.h"
#include "tensor/normal.h"

namespace yard::loop {
namespace {

using loader::LoaderState;

class LoaderSteps final : public StepSource {
 public:
  LoaderSteps(std::unique_ptr<loader::Loader> loader, LoaderState start,
              const text::ClipTokenizer* tokenizer, size_t token_count)
      : loader_(std::move(loader)),
        position_(start),
        tokenizer_(tokenizer),
        token_count_(token_count) {}

  Result<StepData> next() override {
    // Never given up in the middle: peers wait for this rank's share of the step.
    YARD_ASSIGN(loader::Batch batch, loader_->next(StopToken()));
    StepData data{.ids = batch.sample_ids, .keys = batch.keys, .pictures = pictures_of(batch)};
    if (tokenizer_ != nullptr) data.tokens = tokenize(*tokenizer_, batch.captions, token_count_);
    position_ = {batch.position.epoch, batch.position.batch + 1};
    if (position_.batch == static_cast<uint64_t>(loader_->batches_per_epoch()))
      position_ = {position_.epoch + 1, 0};
    loader_->recycle(std::move(batch.images));
    return data;
  }
  double wait_seconds() const override { return loader_->wait_seconds(); }
  LoaderState position() const override { return position_; }

 private:
  std::unique_ptr<loader::Loader> loader_;
  LoaderState position_;
  const text::ClipTokenizer* tokenizer_;
  const size_t token_count_;
};

class SyntheticSteps final : public StepSource {
 public:
  SyntheticSteps(const SyntheticData& data, const StageRecipe& stage, uint64_t seed,
                 RankPlace place, LoaderState start, int64_t channels, int64_t context_width)
      : data_(data),
        stage_(stage),
        seed_(seed),
        place_(place),
        position_(start),
        channels_(channels),
        context_width_(context_width) {}

  Result<StepData> next() override {
    const int64_t share = stage_.batch / place_.size;
    const uint64_t first = position_.batch * static_cast<uint64_t>(stage_.batch) +
                           static_cast<uint64_t>(place_.rank * share);
    StepData step;
    for (int64_t i = 0; i < share; ++i) {
      step.ids.push_back((first + static_cast<uint64_t>(i)) % static_cast<uint64_t>(data_.samples));
      step.keys.push_back("synthetic/" + std::to_string(step.ids.back()));
    }
    step.latents = draw(step.ids, {share, channels_, stage_.resolution, stage_.resolution},
                        tensor::Purpose::kSyntheticLatent);
    step.context =
        draw(step.ids, {share, data_.tokens, context_width_}, tensor::Purpose::kSyntheticText);
    ++position_.batch;
    return step;
  }
  double wait_seconds() const override { return 0; }
  LoaderState position() const override { return position_; }

 private:
  at::Tensor draw(const std::vector<uint64_t>& ids, at::IntArrayRef shape,
                  tensor::Purpose purpose) const {
    at::Tensor out = at::empty(shape, at::kFloat);
    const auto values = tensor::floats_of(out);
    const size_t row = values.size() / ids.size();
    for (size_t i = 0; i < ids.size(); ++i)
      tensor::fill_normal({.seed = seed_, .purpose = purpose, .sample = ids[i]},
                          values.subspan(i * row, row));
    return out;
  }

  const SyntheticData data_;
  const StageRecipe stage_;
  const uint64_t seed_;
  const RankPlace place_;
  LoaderState position_;
  const int64_t channels_, context_width_;
};

}  // namespace

Result<std::unique_ptr<Samples>> Samples::open(const DataRecipe& recipe, uint64_t seed) {
  YARD_ASSIGN(const storage::Location location, storage::open_directory(recipe.shards));
  auto samples = std::unique_ptr<Samples>(new Samples(recipe, seed));
  samples->store_ = location.store;
  YARD_ASSIGN(const auto objects, storage::list_all(*location.store, location.key));
  for (const storage::ObjectInfo& object : objects)
    if (object.key.ends_with(".tar")) samples->shards_.push_back(object.key);
  if (samples->shards_.empty())
    return Error{Code::kNotFound, recipe.shards + ": no shards (*.tar) in it"};
  return samples;
}

loader::LoaderOptions Samples::options(int64_t resolution) const {
  return {.shards = shards_,
          .seed = seed_,
          .image_size = static_cast<int>(resolution),
          .image_members = recipe_.image,
          .caption_member = recipe_.caption,
          .held_out_count = recipe_.held_out,
          .bad_samples = recipe_.skip_bad_samples ? loader::BadSamplePolicy::kSkip
                                                  : loader::BadSamplePolicy::kFail,
          .thread_count = static_cast<int>(recipe_.threads),
          .prefetch_batch_count = recipe_.prefetch,
          .cache_bytes_max = recipe_.cache_bytes};
}

Result<std::unique_ptr<StepSource>> Samples::steps(const StageRecipe& stage, uint64_t stage_seed,
                                                   RankPlace place, LoaderState start,
                                                   const text::ClipTokenizer* tokenizer,
                                                   size_t token_count) {
  loader::LoaderOptions options = this->options(stage.resolution);
  options.seed = stage_seed;
  options.rank = place.rank;
  options.world_size = place.size;
  options.global_batch_size = stage.batch;
  options.random_flip = stage.random_flip;
  options.random_crop = recipe_.random_crop;
  YARD_ASSIGN(auto loader, loader::Loader::open(*store_, options, start, counters_));
  return std::unique_ptr<StepSource>(
      std::make_unique<LoaderSteps>(std::move(loader), start, tokenizer, token_count));
}

Result<std::unique_ptr<loader::Loader>> Samples::one_by_one(int64_t resolution, int64_t begin) {
  loader::LoaderOptions options = this->options(resolution);
  options.global_batch_size = 1;
  options.prefetch_batch_count = 32;
  options.cache_bytes_max = 0;  // each is read once
  return loader::Loader::open(*store_, options, {.batch = static_cast<uint64_t>(begin)}, counters_);
}

at::Tensor tokenize(const text::ClipTokenizer& tokenizer, const std::vector<std::string>& texts,
                    size_t token_count) {
  std::vector<int64_t> ids;
  ids.reserve(texts.size() * token_count);
  for (const std::string& text : texts) {
    const std::vector<int64_t> row = tokenizer.encode(text, token_count);
    ids.insert(ids.end(), row.begin(), row.end());
  }
  return tensor::copy_of(std::span<const int64_t>(ids),
                         {static_cast<int64_t>(texts.size()), static_cast<int64_t>(token_count)});
}

at::Tensor pictures_of(const loader::Batch& batch) {
  return tensor::copy_of(batch.images.floats(),
                         {batch.size, 3, batch.image_size.height, batch.image_size.width});
}

std::unique_ptr<StepSource> synthetic_steps(const SyntheticData& data, const StageRecipe& stage,
                                            uint64_t stage_seed, RankPlace place, LoaderState start,
                                            int64_t channels, int64_t context_width) {
  return std::make_unique<SyntheticSteps>(data, stage, stage_seed, place, start, channels,
                                          context_width);
}

}  // namespace yard::loop
