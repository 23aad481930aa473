#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_map>

#include "parallel/unit_gatherer_internal.h"

namespace yard::parallel {
namespace {

struct UnitPlace {
  UnitGatherer* gatherer = nullptr;
  size_t unit = 0;
};

// libtorch's callbacks are plain functions: the storages that they look for are known per thread.
struct WatchedStorages {
  std::unordered_map<const c10::StorageImpl*, UnitPlace> places;
  std::optional<at::CallbackHandle> callback;
};

WatchedStorages& watched() {
  thread_local WatchedStorages storages;
  return storages;
}

// The units that an operation in progress uses.
class PinnedUnits final : public at::ObserverContext {
 public:
  explicit PinnedUnits(std::vector<UnitPlace> places) : places_(std::move(places)) {
    for (const UnitPlace& place : places_) place.gatherer->pin(place.unit);
  }
  void unpin() {
    for (const UnitPlace& place : places_) place.gatherer->unpin(place.unit);
    places_.clear();
  }

 private:
  std::vector<UnitPlace> places_;
};

void find_unit(const at::Tensor& tensor, std::vector<UnitPlace>& found) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const auto& places = watched().places;
  const auto it =
      places.find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  if (it != places.end()) found.push_back(it->second);
}

std::unique_ptr<at::ObserverContext> before_operation(const at::RecordFunction& operation) {
  std::vector<UnitPlace> found;
  for (const c10::IValue& input : operation.inputs()) {
    if (input.isTensor()) {
      find_unit(input.toTensor(), found);
    } else if (input.isTensorList()) {
      for (const at::Tensor& tensor : input.toTensorVector()) find_unit(tensor, found);
    } else if (input.isList()) {
      for (const c10::IValue& element : input.toListRef())
        if (element.isTensor()) find_unit(element.toTensor(), found);
    }
  }
  if (found.empty()) return nullptr;
  return std::make_unique<PinnedUnits>(std::move(found));
}

void after_operation(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) static_cast<PinnedUnits*>(context)->unpin();
}

void watch(const c10::StorageImpl* storage, UnitPlace place) {
  WatchedStorages& all = watched();
  all.places[storage] = place;
  if (all.callback) return;
  all.callback =
      at::addThreadLocalCallback(at::RecordFunctionCallback(before_operation, after_operation)
                                     .needsInputs(true)
                                     .scopes({at::RecordScope::FUNCTION}));
}

void unwatch(const c10::StorageImpl* storage) {
  WatchedStorages& all = watched();
  all.places.erase(storage);
  if (!all.places.empty() || !all.callback) return;
  at::removeCallback(*all.callback);
  all.callback.reset();
}

}  // namespace

UnitGatherer::UnitGatherer(const FlatLayout& layout, collective::Group& group, at::Tensor source)
    : layout_(layout), group_(group), source_(std::move(source)), units_(layout.units.size()) {
  for (size_t u = 0; u < units_.size(); ++u) {
    const auto size_bytes = static_cast<int64_t>(source_.element_size()) * layout_.unit_elements(u);
    units_[u].storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), size_bytes, c10::DataPtr(nullptr, at::kCPU), nullptr,
        /*resizable=*/false));
    watch(units_[u].storage.unsafeGetStorageImpl(), {this, u});
  }
}

Result<std::unique_ptr<UnitGatherer>> UnitGatherer::create(const FlatLayout& layout,
                                                           collective::Group& group,
                                                           at::Tensor source, int slot_count) {
  const auto slot_bytes = static_cast<size_t>(layout.largest_unit_elements()) *
                          static_cast<size_t>(source.element_size());
  auto gatherer = std::unique_ptr<UnitGatherer>(new UnitGatherer(layout, group, std::move(source)));
  for (int i = 0; i < slot_count; ++i) {
    YARD_ASSIGN(auto memory, group.allocate(slot_bytes));
    gatherer->slots_.push_back({.shared = std::move(memory), .own = {}});
  }
  return gatherer;
}

UnitGatherer::~UnitGatherer() {
  for (size_t s = 0; s < slots_.size(); ++s) evict(s);
  for (Unit& unit : units_) unwatch(unit.storage.unsafeGetStorageImpl());
}

std::byte* UnitGatherer::Slot::data() const {
  return shared ? shared->bytes().data() : static_cast<std::byte*>(own.mutable_data_ptr());
}

at::Tensor UnitGatherer::view(size_t index, at::IntArrayRef shape) const {
  at::Tensor out = at::empty({0}, source_.options());
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = strides[d] * std::max<int64_t>(shape[d], 1);
  out.set_(units_[layout_.unit_of[index]].storage, layout_.offsets[index], shape, strides);
  return out;
}

void UnitGatherer::pin(size_t index) {
  Unit& unit = units_[index];
  ++unit.pin_count;
  unit.used_at = ++clock_;
  if (unit.slot == kNone) {
    size_t slot = free_slot(kNone);
    if (slot == kNone) {
      // One operation over more units than there are slots.
      slot = slots_.size();
      slots_.push_back({.shared = nullptr,
                        .own = at::empty({layout_.largest_unit_elements()}, source_.options())});
    }
    gather(index, slot);
  }
  settle(unit);
  if (unit.foreseen) foresee(index);
}

void UnitGatherer::unpin(size_t unit) {
  --units_[unit].pin_count;
}

void UnitGatherer::gather(size_t index, size_t slot_index) {
  evict(slot_index);
  Slot& slot = slots_[slot_index];
  Unit& unit = units_[index];
  const FlatUnit& place = layout_.units[index];
  slot.unit = index;
  unit.slot = slot_index;
  unit.foreseen = true;
  unit.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(slot.data(), at::kCPU));
  const auto element_bytes = static_cast<size_t>(source_.element_size());
  const auto* chunk = static_cast<const std::byte*>(source_.const_data_ptr()) +
                      static_cast<size_t>(place.local_begin) * element_bytes;
  unit.pending = group_.all_gather(
      {chunk, static_cast<size_t>(place.chunk_elements) * element_bytes},
      {slot.data(), static_cast<size_t>(layout_.unit_elements(index)) * element_bytes});
}

void UnitGatherer::settle(Unit& unit) {
  if (!unit.pending) return;
  const auto start = std::chrono::steady_clock::now();
  Status status = unit.pending->wait();
  unit.pending.reset();
  if (!status && status_) status_ = std::move(status);
  blocked_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void UnitGatherer::evict(size_t slot_index) {
  Slot& slot = slots_[slot_index];
  if (slot.unit == kNone) return;
  Unit& unit = units_[slot.unit];
  settle(unit);
  unit.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, at::kCPU));
  unit.slot = kNone;
  slot.unit = kNone;
}

size_t UnitGatherer::free_slot(size_t beside_unit) const {
  size_t found = kNone;
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].unit == kNone) return s;
    const Unit& unit = units_[slots_[s].unit];
    if (slots_[s].unit == beside_unit || unit.pin_count > 0) continue;
    if (found == kNone || unit.used_at < units_[slots_[found].unit].used_at) found = s;
  }
  return found;
}

// Called at the first use of a unit since it was gathered or foreseen: gathers the one that will
// probably be needed next while this one is computed with.
void UnitGatherer::foresee(size_t index) {
  units_[index].foreseen = false;
  if (index == latest_) return;
  learned_[{before_, latest_}] = index;
  before_ = std::exchange(latest_, index);
  const size_t next = next_after(before_, latest_);
  if (next == kNone || next == index) return;
  if (units_[next].slot != kNone) {
    units_[next].foreseen = true;
    // Kept in memory rather than one that is not foreseen.
    units_[next].used_at = clock_;
    return;
  }
  const size_t slot = free_slot(index);
  if (slot == kNone) return;
  gather(next, slot);
  units_[next].used_at = clock_;
}

size_t UnitGatherer::next_after(size_t before, size_t unit) const {
  const auto it = learned_.find({before, unit});
  if (it != learned_.end()) return it->second;
  // Onward in the forward pass, back from its end.
  const bool backward = before != kNone && before > unit;
  if (!backward && unit + 1 < units_.size()) return unit + 1;
  return unit > 0 ? unit - 1 : kNone;
}

void UnitGatherer::changed() {
  for (size_t s = 0; s < slots_.size(); ++s) evict(s);
  before_ = latest_ = kNone;
  if (units_.empty()) return;
  const auto it = learned_.find({kNone, kNone});
  gather(it == learned_.end() ? 0 : it->second, 0);
}

size_t UnitGatherer::memory_bytes() const {
  return slots_.size() * static_cast<size_t>(layout_.largest_unit_elements()) *
         static_cast<size_t>(source_.element_size());
}

}  // namespace yard::parallel
