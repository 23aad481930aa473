#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <functional>

#include "parallel/gradient_reducer_internal.h"
#include "tensor/host_tensor.h"

namespace yard::parallel {
namespace {

using collective::DType;
using collective::ReduceOp;
using collective::SharedBuffer;

// One being filled while the one before it is reduced.
constexpr size_t kSlotCount = 2;

// Autograd calls this after it has added a parameter's gradient to .grad.
class GradientReady final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientReady(std::function<void()> ready) : ready_(std::move(ready)) {}
  void operator()(const torch::autograd::Variable&) override { ready_(); }

 private:
  std::function<void()> ready_;
};

at::Tensor zeros_over(SharedBuffer& memory, int64_t element_count) {
  at::Tensor out =
      at::from_blob(memory.bytes().data(), {element_count}, at::TensorOptions().dtype(at::kFloat));
  return out.zero_();
}

size_t bytes_of_f32(int64_t element_count) {
  return static_cast<size_t>(element_count) * sizeof(float);
}

}  // namespace

GradientReducer::GradientReducer(std::vector<models::NamedTensor> parameters,
                                 const FlatLayout& layout, const ParallelGroups& groups)
    : parameters_(std::move(parameters)),
      layout_(layout),
      groups_(groups),
      units_(layout.units.size()),
      has_value_(parameters_.size()),
      came_(parameters_.size()) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].tensor.mutable_grad().reset();
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameters_[i].tensor, std::make_unique<GradientReady>([this, i] { ready(i); }));
  }
}

GradientReducer::~GradientReducer() {
  for (const models::NamedTensor& p : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(p.tensor, nullptr);
    p.tensor.mutable_grad().reset();
  }
}

Result<std::unique_ptr<GradientReducer>> GradientReducer::create(
    std::vector<models::NamedTensor> parameters, const FlatLayout& layout,
    const ParallelGroups& groups, bool whole) {
  auto reducer =
      std::unique_ptr<GradientReducer>(new GradientReducer(std::move(parameters), layout, groups));
  YARD_TRY(reducer->allocate(whole || groups.shard == nullptr));
  return reducer;
}

Status GradientReducer::allocate(bool whole) {
  // The last reduction of a chunk is done in place, so it is that group which shares its memory.
  if (groups_.replicate != nullptr) {
    YARD_ASSIGN(local_memory_, groups_.replicate->allocate(bytes_of_f32(layout_.local_elements())));
    local_ = zeros_over(*local_memory_, layout_.local_elements());
  } else {
    local_ = at::zeros({layout_.local_elements()}, at::kFloat);
  }
  if (groups_.shard == nullptr) {
    whole_ = local_;
  } else if (whole) {
    YARD_ASSIGN(whole_memory_, groups_.shard->allocate(bytes_of_f32(layout_.whole_elements())));
    whole_ = zeros_over(*whole_memory_, layout_.whole_elements());
  } else {
    for (size_t i = 0; i < kSlotCount; ++i) {
      Slot slot;
      YARD_ASSIGN(slot.memory,
                  groups_.shard->allocate(bytes_of_f32(layout_.largest_unit_elements())));
      slot.whole = zeros_over(*slot.memory, layout_.largest_unit_elements());
      slots_.push_back(std::move(slot));
    }
  }
  return Ok{};
}

void GradientReducer::begin_step() {
  // Of a backward pass that was broken off.
  for (const models::NamedTensor& p : parameters_) p.tensor.mutable_grad().reset();
  has_value_.assign(has_value_.size(), false);
  first_ = true;
  last_ = false;
  status_ = Ok{};
}

void GradientReducer::begin_micro_batch(MicroBatch micro_batch) {
  YARD_CHECK(!last_);
  last_ = micro_batch == MicroBatch::kLast;
  came_.assign(came_.size(), false);
  if (!whole_.defined()) has_value_.assign(has_value_.size(), false);
  for (size_t u = 0; u < units_.size(); ++u)
    units_[u].missing_count = layout_.units[u].parameter_count;
  next_unit_ = units_.size();
}

void GradientReducer::ready(size_t index) {
  if (came_[index]) {
    note(Error{Code::kInternal,
               parameters_[index].name + ": its gradient became ready twice in one backward pass"});
    return;
  }
  came_[index] = true;
  take(index);
  --units_[layout_.unit_of[index]].missing_count;
  if (whole_.defined() && !last_) return;
  size_t unit = next_unit_;
  while (unit > 0 && units_[unit - 1].missing_count == 0) --unit;
  launch_down_to(unit);
}

void GradientReducer::take(size_t index) {
  const models::NamedTensor& parameter = parameters_[index];
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  at::Tensor unit = unit_tensor(layout_.unit_of[index]);
  at::Tensor place = unit.narrow(0, layout_.offsets[index], layout_.element_counts[index])
                         .view(parameter.tensor.sizes());
  if (has_value_[index]) {
    place.add_(gradient);
  } else {
    place.copy_(gradient);
    const int64_t end = layout_.offsets[index] + layout_.element_counts[index];
    if (const int64_t gap = layout_.gap_end(index) - end; gap > 0) unit.narrow(0, end, gap).zero_();
    has_value_[index] = true;
  }
  gradient.reset();
}

void GradientReducer::zero(size_t index) {
  const int64_t begin = layout_.offsets[index];
  unit_tensor(layout_.unit_of[index]).narrow(0, begin, layout_.gap_end(index) - begin).zero_();
  has_value_[index] = true;
}

void GradientReducer::fill_missing(size_t unit) {
  const FlatUnit& place = layout_.units[unit];
  for (size_t i = place.first_parameter; i < place.first_parameter + place.parameter_count; ++i)
    if (!has_value_[i]) zero(i);
}

at::Tensor GradientReducer::unit_tensor(size_t unit) {
  const int64_t element_count = layout_.unit_elements(unit);
  if (whole_.defined()) return whole_.narrow(0, layout_.units[unit].begin, element_count);
  if (units_[unit].slot == kNone) units_[unit].slot = acquire_slot();
  return slots_[units_[unit].slot].whole.narrow(0, 0, element_count);
}

size_t GradientReducer::acquire_slot() {
  const auto free = [&] {
    size_t s = 0;
    while (s < slots_.size() && slots_[s].busy) ++s;
    return s;
  };
  size_t slot = free();
  while (slot == slots_.size() && !reductions_.empty()) {
    settle_oldest();
    slot = free();
  }
  // More units are open at once than there are slots: the model uses parameters in another order
  // than theirs.
  if (slot == slots_.size())
    slots_.push_back({.memory = nullptr,
                      .whole = at::empty({layout_.largest_unit_elements()}, at::kFloat),
                      .chunk = {}});
  slots_[slot].busy = true;
  return slot;
}

void GradientReducer::launch_down_to(size_t unit) {
  while (next_unit_ > unit) {
    --next_unit_;
    fill_missing(next_unit_);
    if (groups_.shard != nullptr)
      reduce_scatter(next_unit_);
    else if (last_)
      replicate(next_unit_);
  }
}

void GradientReducer::reduce_scatter(size_t unit) {
  const at::Tensor whole = unit_tensor(unit);
  at::Tensor out = local_chunk(unit);
  const bool is_addend = !first_ && !whole_.defined();
  if (is_addend) {
    Slot& slot = slots_[units_[unit].slot];
    if (!slot.chunk.defined())
      slot.chunk = at::empty({layout_.largest_unit_elements() / layout_.shard_count}, at::kFloat);
    out = slot.chunk.narrow(0, 0, layout_.units[unit].chunk_elements);
  }
  reductions_.push_back(
      {.unit = unit,
       .work = groups_.shard->reduce_scatter(tensor::bytes_of(whole), tensor::bytes_of(out),
                                             DType::kF32, ReduceOp::kAverage),
       .is_addend = is_addend});
}

void GradientReducer::replicate(size_t unit) {
  if (groups_.replicate == nullptr) return;
  replications_.push_back(groups_.replicate->all_reduce(tensor::bytes_of(local_chunk(unit)),
                                                        DType::kF32, ReduceOp::kAverage));
}

void GradientReducer::settle_oldest() {
  Reduction oldest = std::move(reductions_.front());
  reductions_.pop_front();
  wait(oldest.work);
  Unit& unit = units_[oldest.unit];
  if (unit.slot != kNone) {
    Slot& slot = slots_[unit.slot];
    if (oldest.is_addend)
      local_chunk(oldest.unit)
          .add_(slot.chunk.narrow(0, 0, layout_.units[oldest.unit].chunk_elements));
    slot.busy = false;
    unit.slot = kNone;
  }
  if (last_) replicate(oldest.unit);
}

at::Tensor GradientReducer::local_chunk(size_t unit) const {
  return local_.narrow(0, layout_.units[unit].local_begin, layout_.units[unit].chunk_elements);
}

Status GradientReducer::end_micro_batch() {
  // Parameters that took no part in this backward have no gradient and no hook call.
  if (!whole_.defined() || last_) {
    launch_down_to(0);
    // A unit's reduction of the next micro-batch begins when this one's has ended.
    if (!last_)
      while (!reductions_.empty()) settle_oldest();
  }
  first_ = false;
  return status_;
}

Status GradientReducer::finish() {
  YARD_CHECK(last_ && next_unit_ == 0);
  while (!reductions_.empty()) settle_oldest();
  for (auto& work : replications_) wait(work);
  replications_.clear();
  last_ = false;
  return status_;
}

void GradientReducer::wait(std::unique_ptr<collective::Work>& work) {
  const auto start = std::chrono::steady_clock::now();
  note(work->wait());
  work.reset();
  blocked_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void GradientReducer::note(Status status) {
  if (!status && status_) status_ = std::move(status);
}

size_t GradientReducer::whole_bytes() const {
  return whole_memory_ ? bytes_of_f32(layout_.whole_elements()) : 0;
}

size_t GradientReducer::unit_bytes() const {
  size_t total = 0;
  for (const Slot& slot : slots_)
    total += slot.whole.nbytes() + (slot.chunk.defined() ? slot.chunk.nbytes() : 0);
  return total;
}

}  // namespace yard::parallel
