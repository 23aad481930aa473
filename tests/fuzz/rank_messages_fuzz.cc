// What a rank of the session, gone mad, sends on its connections for messages: the first byte
// parts the input into what it sends and what it answers.
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "collective/point_to_point_connections_internal.h"

namespace {

using namespace yard;
using namespace yard::collective;

constexpr std::array<size_t, 3> kSizesBytes = {0, 100, 70'000};

Patience patience() {
  return {.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5), .stop = {}};
}

std::shared_ptr<Message> message(CallKind kind, int peer, uint64_t tag) {
  auto made = std::make_shared<Message>();
  made->call = {.root = peer, .kind = kind};
  made->tag = tag;
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view sent = all.substr(0, all.size() * data[0] / 255);
  const std::string_view answered = all.substr(sent.size());

  const std::string name = "yard-fuzz-" + random_name(16);
  const UniqueFd peer_door = *listen_abstract(name + "-peer");
  PointToPoint::Place place{.rank = 0,
                            .session = "session",
                            .doors = std::vector<PeerDoor>(2),
                            .data_listener = *listen_abstract(name),
                            .team_listener = *listen_abstract(name + "-team"),
                            .tunnels = nullptr};
  place.doors[1].team_name = name + "-peer";
  place.doors[1].is_near = true;  // on our way to it; it comes as if from another host
  Failure failure;
  size_t finished_count = 0;
  Connections connections(place, failure, [&](Message& ended, Status) {
    if (!ended.done.exchange(true)) ++finished_count;
  });

  std::vector<std::vector<std::byte>> buffers;
  std::vector<std::shared_ptr<Message>> messages;
  for (const int peer : {1, kAnyRank}) {
    for (const size_t size_bytes : kSizesBytes) {
      buffers.emplace_back(size_bytes);
      messages.push_back(message(CallKind::kReceive, peer, size_bytes % 7));
      messages.back()->in = buffers.back();
    }
  }
  for (const size_t size_bytes : kSizesBytes) {
    buffers.emplace_back(size_bytes);
    messages.push_back(message(CallKind::kSend, 1, 0));
    messages.back()->out = buffers.back();
  }
  for (const auto& each : messages) connections.begin(each);

  const UniqueFd in = *connect_abstract(name, patience());
  (void)send_all(in.get(), neighbour_hello("session", {.rank = 1}), patience());
  (void)send_all(in.get(), sent, patience());
  const UniqueFd back = *accept_connection(peer_door.get(), patience());
  (void)send_all(back.get(), answered, patience());
  const UniqueFd never(::eventfd(0, EFD_CLOEXEC));
  for (int i = 0; i < 5; ++i) connections.step(never.get(), std::chrono::milliseconds(0));
  connections.finish_all(Ok{});
  YARD_CHECK(finished_count == messages.size());
  return 0;
}
