// LatentSet: latents on disk, as the steps of a stage.
#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "loop/latent_manifest_internal.h"
#include "loop/latent_shards.h"
#include "loop/npy.h"
#include "storage/directory_store.h"

namespace yard::loop {

struct LatentSet::Impl {
  const StageRecipe& stage;
  const DataRecipe& data;
  const Networks& networks;
  const CaptionTokenizer& tokenizer;
  LatentManifest manifest;
  bool text_is_of_use = false;  // the captions' states on disk are those of this run
  std::shared_ptr<storage::ObjectStore> store;
  CounterRegistry counters;
  std::unique_ptr<loader::Loader> held_out;

  loader::LoaderOptions options() const;
  Result<at::Tensor> rows(const loader::Batch& batch, const char* extension) const;
  Result<StepData> step_of(const loader::Batch& batch) const;
};

namespace {

class LatentSteps final : public StepSource {
 public:
  using Read = std::function<Result<StepData>(const loader::Batch&)>;
  LatentSteps(std::unique_ptr<loader::Loader> loader, loader::LoaderState start, Read read)
      : loader_(std::move(loader)), position_(start), read_(std::move(read)) {}

  Result<StepData> next() override {
    // Never given up in the middle: peers wait for this rank's share of the step.
    YARD_ASSIGN(const loader::Batch batch, loader_->next(StopToken()));
    YARD_ASSIGN(StepData data, read_(batch));
    position_ = {batch.position.epoch, batch.position.batch + 1};
    if (position_.batch == static_cast<uint64_t>(loader_->batches_per_epoch()))
      position_ = {position_.epoch + 1, 0};
    return data;
  }
  double wait_seconds() const override { return loader_->wait_seconds(); }
  loader::LoaderState position() const override { return position_; }

 private:
  std::unique_ptr<loader::Loader> loader_;
  loader::LoaderState position_;
  const Read read_;
};

const loader::RawMember* find(const loader::RawSample& sample, std::string_view extension) {
  const auto it = std::ranges::find(sample.members, extension, &loader::RawMember::extension);
  return it == sample.members.end() ? nullptr : &*it;
}

Error missing(const std::string& key, const char* extension) {
  return {Code::kCorrupt, fmt::format("{}: has no member '{}'", key, extension)};
}

}  // namespace

loader::LoaderOptions LatentSet::Impl::options() const {
  loader::LoaderOptions out;
  for (int64_t i = 0; i < manifest.shard_count; ++i) out.shards.push_back(latent_shard(i));
  out.raw = true;
  out.global_batch_size = 1;
  out.held_out_count = data.held_out;
  out.thread_count = static_cast<int>(data.threads);
  out.prefetch_batch_count = data.prefetch;
  return out;
}

// One row for each sample of the batch.
Result<at::Tensor> LatentSet::Impl::rows(const loader::Batch& batch, const char* extension) const {
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const loader::RawMember* member = find(batch.samples[i], extension);
    if (member == nullptr) return missing(batch.keys[i], extension);
    YARD_ASSIGN(at::Tensor row, tensor_of_npy(member->content, batch.keys[i] + "." + extension));
    if (!out.empty() && row.sizes() != out.front().sizes())
      return Error{Code::kCorrupt,
                   fmt::format("{}.{}: of another shape than others", batch.keys[i], extension)};
    out.push_back(std::move(row));
  }
  return at::stack(out);
}

Result<StepData> LatentSet::Impl::step_of(const loader::Batch& batch) const {
  StepData step;
  step.ids = batch.sample_ids;
  step.keys = batch.keys;
  YARD_ASSIGN(const at::Tensor latents, rows(batch, kLatentMember));
  step.latents = latents * networks.scaling_factor();
  const Denoiser::Wants wants = networks.denoiser()->wants();
  if (wants.sizes) {
    YARD_ASSIGN(step.condition.sizes, rows(batch, kSizesMember));
  }
  if (!text_is_of_use) {
    std::vector<std::string> captions;
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      const loader::RawMember* caption = find(batch.samples[i], kCaptionMember);
      if (caption == nullptr) return missing(batch.keys[i], kCaptionMember);
      captions.emplace_back(reinterpret_cast<const char*>(caption->content.data()),
                            caption->content.size());
    }
    step.tokens = tokenizer.ids(captions);
    return step;
  }
  YARD_ASSIGN(step.condition.context, rows(batch, kContextMember));
  if (wants.pooled_width > 0) {
    YARD_ASSIGN(step.condition.pooled, rows(batch, kPooledMember));
  }
  if (wants.mask) {
    YARD_ASSIGN(const at::Tensor mask, rows(batch, kMaskMember));
    step.condition.mask = mask.to(at::kLong);
  }
  return step;
}

LatentSet::LatentSet() = default;
LatentSet::~LatentSet() = default;

Result<std::unique_ptr<LatentSet>> LatentSet::open(const StageRecipe& stage, const DataRecipe& data,
                                                   const Networks& networks,
                                                   const CaptionTokenizer& tokenizer) {
  YARD_ASSIGN(const LatentManifest manifest, read_latent_manifest(stage.latents));
  const bool uses_text = manifest.text && networks.text_is_frozen();
  YARD_TRY(compare_encoders(manifest,
                            hashes_of(networks, uses_text ? HashText::kYes : HashText::kNo),
                            uses_text, stage.latents));
  if (manifest.resolution != stage.resolution)
    return Error{Code::kInvalidArgument,
                 fmt::format("stage '{}': {} holds latents of {} px, the stage is of {}",
                             stage.name, stage.latents, manifest.resolution, stage.resolution)};
  for (int64_t i = 0; i < manifest.shard_count; ++i)
    if (!std::filesystem::exists(stage.latents + "/" + latent_shard(i)))
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: {} is missing of {} shards: 'yard prep latents' was broken off "
                               "and goes on when it is run again",
                               stage.latents, latent_shard(i), manifest.shard_count)};
  YARD_ASSIGN(auto store, storage::DirectoryStore::open(stage.latents));
  auto set = std::unique_ptr<LatentSet>(new LatentSet());
  set->impl_ = std::unique_ptr<Impl>(new Impl{
      stage, data, networks, tokenizer, manifest, uses_text, std::move(store), {}, nullptr});
  return set;
}

Result<std::unique_ptr<StepSource>> LatentSet::steps(uint64_t stage_seed, RankPlace place,
                                                     loader::LoaderState start) {
  loader::LoaderOptions options = impl_->options();
  options.seed = stage_seed;
  options.rank = place.rank;
  options.world_size = place.size;
  options.global_batch_size = impl_->stage.batch;
  YARD_ASSIGN(auto loader, loader::Loader::open(*impl_->store, options, start, impl_->counters));
  return std::unique_ptr<StepSource>(std::make_unique<LatentSteps>(
      std::move(loader), start, [this](const loader::Batch& b) { return impl_->step_of(b); }));
}

Result<StepData> LatentSet::held_out(int64_t begin, int64_t count) {
  if (!impl_->held_out) {
    YARD_ASSIGN(impl_->held_out,
                loader::Loader::open(*impl_->store, impl_->options(), {}, impl_->counters));
  }
  YARD_ASSIGN(const loader::Batch batch, impl_->held_out->held_out(begin, count));
  return impl_->step_of(batch);
}

}  // namespace yard::loop
