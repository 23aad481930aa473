// The frames by which ranks find and watch each other: from a socket, and what is in each.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "collective/frame_internal.h"
#include "collective/membership_internal.h"
#include "collective/socket_internal.h"

namespace {

using namespace yard;
using namespace yard::collective;

void look_at(const Frame& frame) {
  if (const auto hello = decode_hello(frame))
    YARD_CHECK(encode_hello(*hello).ends_with(frame.payload));
  for (const int world_size : {1, 2, 5}) {
    const auto welcome = decode_welcome(frame, world_size);
    if (welcome) YARD_CHECK(encode_welcome(*welcome, world_size).ends_with(frame.payload));
  }
  if (const auto name = name_of_neighbour(frame, "session")) {
    YARD_CHECK(name->stream < name->stream_count);
    YARD_CHECK(neighbour_hello("session", *name).ends_with(frame.payload));
  }
  FrameFields refusal(frame.payload);
  (void)refusal.u8();
  const Error error = refusal.error();
  YARD_CHECK(error.code <= Code::kInternal);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::array<int, 2> pair{};
  YARD_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
  const UniqueFd ours(pair[0]);
  UniqueFd theirs(pair[1]);
  YARD_CHECK(::send(theirs.get(), data, size, 0) == static_cast<ssize_t>(size));
  theirs.reset();
  FrameReader reader(kFramePayloadBytesMax);
  while (true) {
    const auto frame = reader.read(ours.get());
    if (!frame) return 0;
    YARD_CHECK(frame->has_value());  // all is there
    look_at(**frame);
  }
}
