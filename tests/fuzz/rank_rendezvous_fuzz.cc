// A stranger at the port where rank 0 waits for its ranks, with TLS and without: whatever it says,
// the ranks find each other, unless it says that it is one of them.
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "collective/membership_internal.h"

namespace {

using namespace yard;
using namespace yard::collective;

constexpr uint32_t kWorldSize = 3;

Patience patience() {
  return {.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5), .stop = {}};
}

int listener() {
  static const UniqueFd fd = *listen_tcp("127.0.0.1", 0);
  return fd.get();
}

TlsTunnels* tunnels() {
  static const auto made = *TlsTunnels::create("a key of the fuzzer");
  return made.get();
}

UniqueFd dial(TlsTunnels* through, std::string_view bytes) {
  auto fd = connect_tcp("127.0.0.1", local_port(listener()), patience());
  YARD_CHECK(fd.has_value());
  auto secure = secured(through, *std::move(fd), TlsSide::kClient, "rank 0");
  YARD_CHECK(secure.has_value());
  // Who is turned away meanwhile cannot say all.
  (void)send_all(secure->get(), bytes, patience());
  return *std::move(secure);
}

std::string hello_of(uint32_t rank) {
  return encode_hello({.rank = rank,
                       .world_size = kWorldSize,
                       .generation = 7,
                       .run_id = "run",
                       .host_identity = "host",
                       .host_name = "",
                       .data_port = 1,
                       .reunion_port = 2,
                       .team_name = "team"});
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  (void)configure_log({.level = LogLevel::kError});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  TlsTunnels* const through = (data[0] & 1) != 0 ? tunnels() : nullptr;
  const std::string_view said(reinterpret_cast<const char*>(data) + 1, size - 1);
  const UniqueFd stranger = dial((data[0] & 2) != 0 ? through : nullptr, said);
  ::shutdown(stranger.get(), SHUT_WR);
  const UniqueFd first = dial(through, hello_of(1));
  const UniqueFd second = dial(through, hello_of(2));
  const RendezvousOptions options{.rank = 0,
                                  .world_size = kWorldSize,
                                  .announce = {},
                                  .run_id = "run",
                                  .generation = 7,
                                  .flight_path = {},
                                  .host_identity = {},
                                  .tls_key = {},
                                  .host_name = {}};
  const auto membership =
      gather_members(options, UniqueFd(::dup(listener())), "host", through, patience());
  if (membership) {
    YARD_CHECK(membership->welcome.doors.size() == kWorldSize);
    YARD_CHECK(membership->sockets.size() == kWorldSize - 1);
  } else {
    // One of ours, or what says so: twice, of another world.
    YARD_CHECK(membership.error().code == Code::kInvalidArgument);
    YARD_CHECK(said.find("run") != std::string_view::npos);
  }
  return 0;
}
