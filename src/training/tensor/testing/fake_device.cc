#include "tensor/testing/fake_device.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <utility>

namespace yard::tensor::testing {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

thread_local DeviceIndex current_device = 0;
thread_local std::vector<std::string> stream_log;
thread_local int event_count = 0;

constexpr c10::StreamId kPoolStream = 1;

// Handles: the address of a stream's place says its number.
std::array<char, 2> stream_places;

struct FakeEvent {
  int number = 0;
};

class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kFakeDevice; }
  Device exchangeDevice(Device device) const override {
    return {kFakeDevice, std::exchange(current_device, device.index())};
  }
  Device getDevice() const override { return {kFakeDevice, current_device}; }
  void setDevice(Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(Device device) const noexcept override {
    current_device = device.index();
  }
  DeviceIndex deviceCount() const noexcept override { return kFakeDeviceCount; }

  Stream getStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    return Stream(Stream::UNSAFE, device, kPoolStream);
  }
  Stream exchangeStream(Stream stream) const override { return stream; }
  void* getStreamNativeHandle(const Stream stream) const override {
    return &stream_places[static_cast<size_t>(stream.id())];
  }

  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<FakeEvent*>(event);
  }
  void record(void** event, const Stream& stream, const DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new FakeEvent{event_count++};
    note("record", stream, *event);
  }
  void block(void* event, const Stream& stream) const override { note("block", stream, event); }
  bool queryEvent(void*) const override { return true; }

 private:
  static void note(const char* what, const Stream& stream, const void* event) {
    stream_log.push_back(fmt::format("{} {} on {}", what, stream.id(),
                                     static_cast<const FakeEvent*>(event)->number));
  }
};

class FakeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    void* memory = std::calloc(1, size_bytes);
    return {memory, memory, &std::free, Device(kFakeDevice, current_device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    default_copy_data(to, from, size_bytes);
  }
};

FakeAllocator allocator;
const c10::impl::DeviceGuardImplRegistrar guard_registrar(kFakeDevice, new FakeGuard);
const bool allocator_is_set = [] {
  c10::SetAllocator(kFakeDevice, &allocator);
  return true;
}();

}  // namespace

std::vector<std::string> take_stream_log() {
  event_count = 0;
  return std::exchange(stream_log, {});
}

void note_on_stream(const void* native_stream, const std::string& what) {
  stream_log.push_back(
      fmt::format("{} {}", what, static_cast<const char*>(native_stream) - stream_places.data()));
}

c10::DeviceIndex current_fake_device() {
  return current_device;
}

}  // namespace yard::tensor::testing
