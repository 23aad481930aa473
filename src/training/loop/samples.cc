#include "loop/samples.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "shards/shard_reader.h"
#include "tensor/host_tensor.h"
#include "tensor/normal.h"

namespace yard::loop {
namespace {

using loader::LoaderState;

// N(0, 1), a row for each id.
at::Tensor drawn(at::IntArrayRef shape, std::span<const uint64_t> ids, tensor::Draw draw) {
  at::Tensor out = at::empty(shape, at::kFloat);
  const auto values = tensor::floats_of(out);
  const size_t row = values.size() / ids.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    draw.sample = ids[i];
    tensor::fill_normal(draw, values.subspan(i * row, row));
  }
  return out;
}

class LoaderSteps final : public StepSource {
 public:
  LoaderSteps(std::unique_ptr<loader::Loader> loader, LoaderState start, Samples& samples,
              const Samples::Wanted& wanted)
      : loader_(std::move(loader)), position_(start), samples_(samples), wanted_(wanted) {}

  Result<StepData> next() override {
    // Never given up in the middle: peers wait for this rank's share of the step.
    YARD_ASSIGN(loader::Batch batch, loader_->next(StopToken()));
    StepData data;
    data.ids = batch.sample_ids;
    data.keys = batch.keys;
    data.pictures = pictures_of(batch);
    if (wanted_.tokens != nullptr) data.tokens = wanted_.tokens->ids(batch.captions);
    if (wanted_.sizes) {
      YARD_ASSIGN(data.condition.sizes, samples_.sizes(batch.sample_ids, batch.image_size.height,
                                                       batch.image_size.width));
    }
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
  Samples& samples_;
  const Samples::Wanted wanted_;
};

class SyntheticSteps final : public StepSource {
 public:
  SyntheticSteps(const SyntheticData& data, const StageRecipe& stage, uint64_t seed,
                 RankPlace place, LoaderState start, const Denoiser& denoiser)
      : data_(data),
        stage_(stage),
        seed_(seed),
        place_(place),
        position_(start),
        denoiser_(denoiser) {}

  Result<StepData> next() override {
    const int64_t share = stage_.batch / place_.size;
    const uint64_t first = position_.batch * static_cast<uint64_t>(stage_.batch) +
                           static_cast<uint64_t>(place_.rank * share);
    StepData step;
    for (int64_t i = 0; i < share; ++i) {
      step.ids.push_back((first + static_cast<uint64_t>(i)) % static_cast<uint64_t>(data_.samples));
      step.keys.push_back("synthetic/" + std::to_string(step.ids.back()));
    }
    step.latents = drawn({share, denoiser_.channels(), stage_.resolution, stage_.resolution},
                         step.ids, {.seed = seed_, .purpose = tensor::Purpose::kSyntheticLatent});
    step.condition =
        synthetic_condition(denoiser_, step.ids, seed_, data_.tokens, stage_.resolution);
    ++position_.batch;
    return step;
  }
  double wait_seconds() const override { return 0; }
  LoaderState position() const override { return position_; }

 private:
  const SyntheticData data_;
  const StageRecipe stage_;
  const uint64_t seed_;
  const RankPlace place_;
  LoaderState position_;
  const Denoiser& denoiser_;
};

// Of the first of those members that the sample has.
Result<PictureSide> picture_side(const shards::ShardReader& shard, uint64_t sample,
                                 const std::string& image_members) {
  std::istringstream members(image_members);
  for (std::string extension; std::getline(members, extension, ',');) {
    const shards::ShardIndex::Member* member = shard.index().find(sample, extension);
    if (member == nullptr) continue;
    if (const auto size = shard.index().picture_size(sample, *member))
      return PictureSide{size->width, size->height};
    break;
  }
  return Error{
      Code::kInvalidArgument,
      fmt::format("{}: its index does not say how large the picture is, and the denoiser is "
                  "told that: make the index anew by 'yard shards index'",
                  shard.where(sample))};
}

}  // namespace

Result<std::unique_ptr<Samples>> Samples::open(const DataRecipe& recipe, uint64_t seed) {
  auto samples = std::unique_ptr<Samples>(new Samples(recipe, seed));
  if (recipe.shards.empty()) return samples;
  YARD_ASSIGN(const storage::Location location, storage::open_directory(recipe.shards));
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
                                                   const Wanted& wanted) {
  loader::LoaderOptions options = this->options(stage.resolution);
  options.seed = stage_seed;
  options.rank = place.rank;
  options.world_size = place.size;
  options.global_batch_size = stage.batch;
  options.random_flip = stage.random_flip;
  options.random_crop = recipe_.random_crop;
  for (const PictureSide& side : stage.aspect_buckets)
    options.aspect_buckets.push_back({static_cast<int>(side.width), static_cast<int>(side.height)});
  if (wanted.sizes) YARD_TRY(read_picture_sides());
  YARD_ASSIGN(auto loader, loader::Loader::open(*store_, options, start, counters_));
  return std::unique_ptr<StepSource>(
      std::make_unique<LoaderSteps>(std::move(loader), start, *this, wanted));
}

Result<std::unique_ptr<loader::Loader>> Samples::one_by_one(int64_t resolution, int64_t begin) {
  loader::LoaderOptions options = this->options(resolution);
  options.global_batch_size = 1;
  options.prefetch_batch_count = 32;
  options.cache_bytes_max = 0;  // each is read once
  return loader::Loader::open(*store_, options, {.batch = static_cast<uint64_t>(begin)}, counters_);
}

Result<std::unique_ptr<loader::Loader>> Samples::of_shard(const std::string& shard,
                                                          int64_t resolution) {
  loader::LoaderOptions options = this->options(resolution);
  options.shards = {shard};
  options.shuffle = false;
  options.global_batch_size = 1;
  options.held_out_count = 0;
  options.prefetch_batch_count = 32;
  options.cache_bytes_max = 0;
  return loader::Loader::open(*store_, options, {}, counters_);
}

Result<std::vector<PictureSide>> Samples::picture_sides(const std::string& shard) const {
  YARD_ASSIGN(const shards::ShardReader reader, shards::ShardReader::open(*store_, shard));
  std::vector<PictureSide> sides;
  for (uint64_t i = 0; i < reader.index().sample_count(); ++i) {
    YARD_ASSIGN(const PictureSide side, picture_side(reader, i, recipe_.image));
    sides.push_back(side);
  }
  return sides;
}

Status Samples::read_picture_sides() {
  if (!picture_sides_.empty()) return Ok{};
  for (const std::string& shard : shards_) {
    YARD_ASSIGN(const std::vector<PictureSide> some, picture_sides(shard));
    picture_sides_.insert(picture_sides_.end(), some.begin(), some.end());
  }
  return Ok{};
}

Result<at::Tensor> Samples::sizes(const std::vector<uint64_t>& ids, int64_t height, int64_t width) {
  YARD_TRY(read_picture_sides());
  std::vector<float> values;
  for (const uint64_t id : ids) {
    YARD_CHECK(id < picture_sides_.size());
    const std::array<float, 6> row = size_condition(picture_sides_[id], height, width);
    values.insert(values.end(), row.begin(), row.end());
  }
  return tensor::copy_of(std::span<const float>(values), {static_cast<int64_t>(ids.size()), 6});
}

std::array<float, 6> size_condition(const PictureSide& original, int64_t height, int64_t width) {
  const auto from_height = static_cast<double>(original.height);
  const auto from_width = static_cast<double>(original.width);
  const auto to_height = static_cast<double>(height), to_width = static_cast<double>(width);
  const double scale = std::max(to_height / from_height, to_width / from_width);
  const auto margin = [scale](double from, double to) {
    return static_cast<float>(std::floor(std::max(from * scale - to, 0.0) / 2));
  };
  return {static_cast<float>(from_height), static_cast<float>(from_width),
          margin(from_height, to_height),  margin(from_width, to_width),
          static_cast<float>(to_height),   static_cast<float>(to_width)};
}

at::Tensor pictures_of(const loader::Batch& batch) {
  return tensor::copy_of(batch.images.floats(),
                         {batch.size, 3, batch.image_size.height, batch.image_size.width});
}

std::unique_ptr<StepSource> synthetic_steps(const SyntheticData& data, const StageRecipe& stage,
                                            uint64_t stage_seed, RankPlace place, LoaderState start,
                                            const Denoiser& denoiser) {
  return std::make_unique<SyntheticSteps>(data, stage, stage_seed, place, start, denoiser);
}

DenoiserCondition synthetic_condition(const Denoiser& denoiser, std::span<const uint64_t> ids,
                                      uint64_t seed, int64_t token_count, int64_t picture_side) {
  const auto count = static_cast<int64_t>(ids.size());
  const Denoiser::Wants wants = denoiser.wants();
  const tensor::Draw text{.seed = seed, .purpose = tensor::Purpose::kSyntheticText};
  DenoiserCondition out;
  out.context = drawn({count, token_count, denoiser.context_width()}, ids, text);
  if (wants.pooled_width > 0) {
    tensor::Draw pooled = text;
    pooled.step = 1;
    out.pooled = drawn({count, wants.pooled_width}, ids, pooled);
  }
  if (wants.sizes) {
    const auto side = static_cast<float>(picture_side);
    out.sizes = at::tensor({side, side, 0.0F, 0.0F, side, side}).expand({count, 6});
  }
  return out;
}

}  // namespace yard::loop
