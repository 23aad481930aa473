// For tests: a device of torch's type PrivateUse1 whose memory is the host's and whose streams do
// nothing but remember, so that what is done by devices, streams and events can be seen without a
// GPU. Once in a process.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <string>
#include <vector>

namespace yard::tensor::testing {

constexpr c10::DeviceType kFakeDevice = c10::DeviceType::PrivateUse1;
constexpr int kFakeDeviceCount = 4;

// The calling thread's, since the last call: "record S on E", "block S on E", S a stream's number
// and E an event's. Stream 0 is the current one, 1 that of the pool.
std::vector<std::string> take_stream_log();
// Adds to it what else happens in that order.
void note_on_stream(const void* native_stream, const std::string& what);
c10::DeviceIndex current_fake_device();

}  // namespace yard::tensor::testing
