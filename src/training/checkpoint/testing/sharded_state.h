// For tests: tensors whose every element tells which it is and of which step, cut among ranks; and
// ranks as threads.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "collective/rendezvous.h"

namespace yard::checkpoint::testing {

// One byte of the tensor, by its place in the whole.
inline std::byte expected_byte(const std::string& name, int64_t step, uint64_t position) {
  uint64_t mixed = position * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(step) * 1000003U;
  for (const char c : name) mixed = mixed * 31 + static_cast<unsigned char>(c);
  return static_cast<std::byte>(mixed >> 40);
}

// A chunk with memory of its own.
struct OwnedChunk {
  std::string name;
  TensorInfo info;
  Region region;
  std::vector<std::byte> bytes;

  OwnedChunk(std::string name, TensorInfo info, Region region)
      : name(std::move(name)), info(std::move(info)), region(std::move(region)) {
    bytes.resize(chunk_bytes(this->info, this->region));
  }

  // Every byte, and its place in the whole tensor.
  void visit(const std::function<void(std::byte&, uint64_t)>& visitor) {
    const uint64_t width = element_bytes(info.dtype);
    for (RunCursor cursor(region, info.shape); !cursor.done(); cursor.next())
      for (uint64_t i = 0; i < cursor.run().size() * width; ++i)
        visitor(bytes[cursor.position() * width + i], cursor.run().begin * width + i);
  }
  void fill(int64_t step) {
    visit([&](std::byte& byte, uint64_t at) { byte = expected_byte(name, step, at); });
  }
  // How many bytes are not those of `step`.
  uint64_t wrong_count(int64_t step) {
    uint64_t wrong = 0;
    visit([&](std::byte& byte, uint64_t at) { wrong += byte != expected_byte(name, step, at); });
    return wrong;
  }
};

using State = std::vector<OwnedChunk>;

inline std::vector<TensorView> views_of(const State& state) {
  std::vector<TensorView> views;
  for (const OwnedChunk& chunk : state)
    views.push_back({chunk.name, chunk.info, chunk.region, chunk.bytes});
  return views;
}

inline std::vector<TensorTarget> targets_of(State& state) {
  std::vector<TensorTarget> targets;
  for (OwnedChunk& chunk : state)
    targets.push_back({chunk.name, chunk.info, chunk.region, chunk.bytes});
  return targets;
}

inline void fill(State& state, int64_t step) {
  for (OwnedChunk& chunk : state) chunk.fill(step);
}

inline uint64_t wrong_count(State& state, int64_t step) {
  uint64_t wrong = 0;
  for (OwnedChunk& chunk : state) wrong += chunk.wrong_count(step);
  return wrong;
}

// Rank `rank`'s equal share of [0, size); the first ranks take what is left over, and late ranks of
// many have none.
inline Interval share_of(uint64_t size, int rank, int world_size) {
  const auto r = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(world_size);
  return {size * r / n, size * (r + 1) / n};
}

// Every way of sharding that there is: rows (three of them), columns, flat across rows, replicated,
// a scalar, one without elements, narrow and wide types.
inline State make_state(int rank, int world_size, uint64_t scale = 1) {
  State state;
  const auto rows = [&](const std::string& name, const TensorInfo& info, size_t dimension) {
    const Interval side = share_of(info.shape[dimension], rank, world_size);
    state.emplace_back(name, info, Region::slice(info.shape, dimension, side.begin, side.end));
  };
  const auto flat = [&](const std::string& name, const TensorInfo& info) {
    const Interval side = share_of(*count_elements(info.shape), rank, world_size);
    state.emplace_back(name, info, Region::flat(side.begin, side.end));
  };
  rows("rows.three", {"F32", {3, 17 * scale}}, 0);
  rows("rows.conv", {"BF16", {10, 4, 3, 3 * scale}}, 0);
  rows("columns", {"F32", {29, 31 * scale}}, 1);
  rows("columns.middle", {"F16", {5, 23, 7 * scale}}, 1);
  flat("flat", {"F32", {19, 101 * scale}});
  flat("flat.bytes", {"U8", {1001 * scale}});
  state.emplace_back("replicated", TensorInfo{"F64", {7, 11 * scale}}, Region::all());
  state.emplace_back("step", TensorInfo{"I64", {}}, Region::all());
  state.emplace_back("empty", TensorInfo{"BF16", {0, 4}}, Region::all());
  return state;
}

// A port of 127.0.0.1 that nobody listened on a moment ago.
inline uint16_t unused_port() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  socklen_t size_bytes = sizeof address;
  YARD_CHECK(::bind(socket.get(), name, size_bytes) == 0);
  YARD_CHECK(::getsockname(socket.get(), name, &size_bytes) == 0);
  return ntohs(address.sin_port);
}

// Each rank on a thread, with a group that nobody else uses. hosts[r]: where rank r is.
inline void on_groups(const std::vector<std::string>& hosts,
                      const std::function<void(collective::Group&)>& body) {
  const uint16_t port = unused_port();
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    threads.emplace_back([&, rank] {
      const collective::RendezvousOptions options{.rank = static_cast<int>(rank),
                                                  .world_size = static_cast<int>(hosts.size()),
                                                  .master_port = port,
                                                  .run_id = "test",
                                                  .host_identity = hosts[rank]};
      auto group = collective::connect(options, StopToken());
      YARD_CHECK(group.has_value());
      body(**group);
    });
}

inline void on_exchanges(int world_size, const std::function<void(Exchange&)>& body) {
  if (world_size == 1) {
    const auto group = collective::single_rank_group();
    return body(*exchange_over(*group));
  }
  on_groups(std::vector<std::string>(static_cast<size_t>(world_size), "host"),
            [&](collective::Group& group) { body(*exchange_over(group)); });
}

}  // namespace yard::checkpoint::testing
