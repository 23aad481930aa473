#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <chrono>

#include "parallel/bf16_rounding.h"
#include "parallel/flat_parameters_internal.h"
#include "tensor/host_tensor.h"

namespace yard::parallel {
namespace {

using models::NamedTensor;

class BlockedTime {
 public:
  explicit BlockedTime(double& seconds) : seconds_(seconds) {}
  ~BlockedTime() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  BlockedTime(const BlockedTime&) = delete;
  BlockedTime& operator=(const BlockedTime&) = delete;

 private:
  double& seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

bool is_first_of(collective::Group* group) {
  return group == nullptr || group->rank() == 0;
}

Status broadcast(collective::Group* group, const at::Tensor& values) {
  return group == nullptr ? Ok{} : group->broadcast(tensor::bytes_of(values), 0)->wait();
}

}  // namespace

FlatParameters::FlatParameters(std::vector<NamedTensor> parameters, const FlatLayout& layout,
                               const ParallelGroups& groups, const DataParallelOptions& options)
    : parameters_(std::move(parameters)), layout_(layout), groups_(groups), options_(options) {}

FlatParameters::~FlatParameters() {
  if (released_ || !whole_memory_) return;
  // What is a view of memory that goes with us must not be read any more.
  for (const NamedTensor& p : parameters_) {
    at::Tensor none = at::empty({0}, p.tensor.options().requires_grad(false));
    p.tensor.mutable_grad().reset();
    at::Tensor(p.tensor).set_data(none);
  }
}

Result<std::unique_ptr<FlatParameters>> FlatParameters::create(std::vector<NamedTensor> parameters,
                                                               const FlatLayout& layout,
                                                               const ParallelGroups& groups,
                                                               const DataParallelOptions& options,
                                                               const ParameterStart& start) {
  c10::NoGradGuard no_grad;
  auto made = std::unique_ptr<FlatParameters>(
      new FlatParameters(std::move(parameters), layout, groups, options));
  YARD_TRY(made->allocate());
  made->cut_local();
  YARD_TRY(made->start_units(start));
  YARD_TRY(made->publish(0));
  return made;
}

Status FlatParameters::allocate() {
  const int64_t element_count = layout_.whole_elements();
  const auto options = at::TensorOptions().dtype(options_.compute_dtype);
  if (is_rounded() || is_gathering()) master_ = at::zeros({layout_.local_elements()}, at::kFloat);
  if (is_gathering()) {
    chunks_ = is_rounded() ? at::zeros({layout_.local_elements()}, options) : master_;
    YARD_ASSIGN(gatherer_,
                UnitGatherer::create(layout_, *groups_.shard, chunks_, options_.gathered_units));
  } else if (groups_.shard != nullptr) {
    const auto size_bytes =
        static_cast<size_t>(element_count) * c10::elementSize(options_.compute_dtype);
    YARD_ASSIGN(whole_memory_, groups_.shard->allocate(size_bytes));
    whole_ = at::from_blob(whole_memory_->bytes().data(), {element_count}, options).zero_();
  } else {
    whole_ = at::zeros({element_count}, options);
  }
  return Ok{};
}

void FlatParameters::cut_local() {
  if (master_.defined() || groups_.shard == nullptr) {
    cuts_ = {{0, layout_.local_elements()}};
    local_ = {master_.defined() ? master_ : whole_};
    return;
  }
  for (const FlatUnit& unit : layout_.units) {
    cuts_.push_back({unit.local_begin, unit.chunk_elements});
    local_.push_back(
        whole_.narrow(0, unit.begin + shard() * unit.chunk_elements, unit.chunk_elements));
  }
}

Status FlatParameters::start_units(const ParameterStart& start) {
  at::Tensor scratch;
  if (master_.defined()) scratch = at::empty({layout_.largest_unit_elements()}, at::kFloat);
  for (size_t u = 0; u < layout_.units.size(); ++u) {
    const int64_t element_count = layout_.unit_elements(u);
    const at::Tensor values = master_.defined()
                                  ? scratch.narrow(0, 0, element_count)
                                  : whole_.narrow(0, layout_.units[u].begin, element_count);
    YARD_TRY(start_unit(u, start, values));
  }
  return Ok{};
}

Status FlatParameters::start_unit(size_t unit, const ParameterStart& start, at::Tensor values) {
  const FlatUnit& place = layout_.units[unit];
  const size_t end = place.first_parameter + place.parameter_count;
  Status started = Ok{};
  if (is_first_of(groups_.shard) && is_first_of(groups_.replicate)) {
    values.zero_();
    for (size_t i = place.first_parameter; i < end && started; ++i) {
      at::Tensor out = view(i, values);
      started = start(i, out);
    }
  }
  if (!started) {
    // The others wait for the values.
    if (groups_.shard != nullptr) groups_.shard->abort(started.error().message);
    if (groups_.replicate != nullptr) groups_.replicate->abort(started.error().message);
    return started;
  }
  YARD_TRY(broadcast(groups_.shard, values));
  YARD_TRY(broadcast(groups_.replicate, values));
  if (master_.defined())
    master_.narrow(0, place.local_begin, place.chunk_elements)
        .copy_(values.narrow(0, shard() * place.chunk_elements, place.chunk_elements));
  for (size_t i = place.first_parameter; i < end; ++i) adopt(i);
  return Ok{};
}

// From here on the parameter's memory is ours, and what it had is free.
void FlatParameters::adopt(size_t index) {
  at::Tensor parameter = parameters_[index].tensor;
  parameter.mutable_grad().reset();
  const FlatUnit& unit = layout_.units[layout_.unit_of[index]];
  parameter.set_data(
      gatherer_
          ? gatherer_->view(index, parameter.sizes())
          : view(index, whole_.narrow(0, unit.begin, unit.chunk_elements * layout_.shard_count)));
}

at::Tensor FlatParameters::view(size_t index, const at::Tensor& unit) const {
  return unit.narrow(0, layout_.offsets[index], layout_.element_counts[index])
      .view(parameters_[index].tensor.sizes());
}

at::Tensor FlatParameters::local_range(int64_t begin, int64_t count) const {
  for (size_t c = 0; c < cuts_.size(); ++c) {
    const int64_t offset = begin - cuts_[c].begin;
    if (offset >= 0 && offset + count <= cuts_[c].element_count)
      return local_[c].narrow(0, offset, count);
  }
  YARD_UNREACHABLE();
}

at::Tensor FlatParameters::compute_chunk(size_t unit) {
  const FlatUnit& place = layout_.units[unit];
  return is_gathering()
             ? chunks_.narrow(0, place.local_begin, place.chunk_elements)
             : whole_.narrow(0, place.begin + shard() * place.chunk_elements, place.chunk_elements);
}

void FlatParameters::round_chunk(size_t unit, int64_t step) {
  const FlatUnit& place = layout_.units[unit];
  at::Tensor out = compute_chunk(unit);
  if (!options_.stochastic_rounding) {
    out.copy_(master_.narrow(0, place.local_begin, place.chunk_elements));
    return;
  }
  for (size_t i = place.first_parameter; i < place.first_parameter + place.parameter_count; ++i) {
    const FlatRange range = layout_.range_of(i, shard());
    if (range.count == 0) continue;
    auto* to = static_cast<uint16_t*>(
        out.narrow(0, range.local_begin - place.local_begin, range.count).mutable_data_ptr());
    round_stochastically(tensor::floats_of(master_.narrow(0, range.local_begin, range.count)),
                         {to, static_cast<size_t>(range.count)},
                         {.seed = options_.seed,
                          .step = static_cast<uint64_t>(step),
                          .parameter = i,
                          .begin = static_cast<uint64_t>(range.begin)});
  }
}

Status FlatParameters::publish(int64_t step) {
  c10::NoGradGuard no_grad;
  if (released_) return refill_released();
  if (is_rounded())
    for (size_t u = 0; u < layout_.units.size(); ++u) round_chunk(u, step);
  if (gatherer_) {
    gatherer_->changed();
    return gatherer_->status();
  }
  return groups_.shard == nullptr ? Status(Ok{}) : gather_whole();
}

Status FlatParameters::gather_whole() {
  const BlockedTime blocked(blocked_seconds_);
  std::vector<std::unique_ptr<collective::Work>> works;
  for (size_t u = 0; u < layout_.units.size(); ++u)
    works.push_back(groups_.shard->all_gather(
        tensor::bytes_of(compute_chunk(u)),
        tensor::bytes_of(whole_.narrow(0, layout_.units[u].begin, layout_.unit_elements(u)))));
  Status result = Ok{};
  for (auto& work : works)
    if (Status status = work->wait(); !status && result) result = std::move(status);
  return result;
}

Result<at::Tensor> FlatParameters::gather_unit(size_t unit, const at::Tensor& local,
                                               at::Tensor& scratch) const {
  const FlatUnit& place = layout_.units[unit];
  const at::Tensor chunk = local.defined()
                               ? local.narrow(0, place.local_begin, place.chunk_elements)
                               : local_range(place.local_begin, place.chunk_elements);
  if (groups_.shard == nullptr) return chunk;
  const at::Tensor out = scratch.narrow(0, 0, layout_.unit_elements(unit));
  YARD_TRY(groups_.shard->all_gather(tensor::bytes_of(chunk), tensor::bytes_of(out))->wait());
  return out;
}

Status FlatParameters::release() {
  if (released_) return Ok{};
  c10::NoGradGuard no_grad;
  // Ordinary tensors already, and they follow the optimiser as they are.
  if (groups_.shard == nullptr && !is_rounded()) return Ok{};
  for (const NamedTensor& p : parameters_)
    at::Tensor(p.tensor).set_data(at::empty(p.tensor.sizes(), at::kFloat));
  released_ = true;
  gatherer_.reset();
  return refill_released();
}

Status FlatParameters::refill_released() {
  const BlockedTime blocked(blocked_seconds_);
  at::Tensor scratch = at::empty({layout_.largest_unit_elements()}, at::kFloat);
  for (size_t u = 0; u < layout_.units.size(); ++u) {
    YARD_ASSIGN(const at::Tensor values, gather_unit(u, {}, scratch));
    const FlatUnit& place = layout_.units[u];
    for (size_t i = place.first_parameter; i < place.first_parameter + place.parameter_count; ++i)
      at::Tensor(parameters_[i].tensor).copy_(view(i, values));
  }
  return Ok{};
}

double FlatParameters::blocked_seconds() const {
  return blocked_seconds_ + (gatherer_ ? gatherer_->blocked_seconds() : 0);
}

void FlatParameters::add_memory(ParallelMemory& memory) const {
  memory.parameters = master_.defined() ? master_.nbytes() : whole_.nbytes();
  if (master_.defined() && whole_.defined()) memory.compute_parameters = whole_.nbytes();
  if (gatherer_ && is_rounded()) memory.compute_parameters = chunks_.nbytes();
  if (gatherer_) memory.gathered_parameters = gatherer_->memory_bytes();
}

}  // namespace yard::parallel
