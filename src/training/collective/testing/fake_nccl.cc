#include "collective/testing/fake_nccl.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace yard::collective {
namespace {

constexpr int kRemoteError = 6;
constexpr int kInvalid = 4;

struct Id {
  std::array<std::byte, 128> bytes;
};

// What the ranks of one communicator share: a place for each, and a barrier.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0;
  int arrived = 0;
  uint64_t round = 0;
  bool is_aborted = false;
  std::vector<const void*> ins;
  // Messages by (from, to).
  std::map<std::pair<int, int>, std::vector<std::vector<std::byte>>> messages;
};

struct Comm {
  std::shared_ptr<World> world;
  int rank = 0;
};

struct Registry {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<World>> worlds;
  uint64_t id_count = 0;
  std::atomic<bool> is_broken = false;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

size_t bytes_of_type(int type) {
  constexpr std::array<size_t, 10> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[static_cast<size_t>(type)];
}

bool barrier(World& world) {
  std::unique_lock lock(world.mutex);
  const uint64_t round = world.round;
  if (++world.arrived == world.size) {
    world.arrived = 0;
    ++world.round;
    world.changed.notify_all();
  }
  world.changed.wait(lock, [&] { return world.round != round || world.is_aborted; });
  return !world.is_aborted;
}

template <typename T>
T combine(T a, T b, int op) {
  switch (op) {
    case 1:
      return static_cast<T>(a * b);
    case 2:
      return std::max(a, b);
    case 3:
      return std::min(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

// Elements [begin, begin + count) of the reduction of all ranks' buffers.
template <typename T>
void reduce_as(const World& world, void* out, size_t begin, size_t count, int op) {
  std::vector<T> result(count);
  for (size_t i = 0; i < count; ++i) {
    T value = static_cast<const T*>(world.ins[0])[begin + i];
    for (size_t rank = 1; rank < world.ins.size(); ++rank)
      value = combine(value, static_cast<const T*>(world.ins[rank])[begin + i], op);
    result[i] = op == 4 ? static_cast<T>(value / static_cast<T>(world.size)) : value;
  }
  std::memcpy(out, result.data(), count * sizeof(T));
}

int reduce_typed(const World& world, void* out, size_t begin, size_t count, int type, int op) {
  switch (type) {
    case 2:
      return reduce_as<int32_t>(world, out, begin, count, op), 0;
    case 4:
      return reduce_as<int64_t>(world, out, begin, count, op), 0;
    case 7:
      return reduce_as<float>(world, out, begin, count, op), 0;
    case 8:
      return reduce_as<double>(world, out, begin, count, op), 0;
    default:
      return kInvalid;
  }
}

// Each rank shows its input, works on all, and leaves when all have worked. What is written in
// place is written at the end.
template <typename Work>
int together(Comm* comm, const void* in, void* out, size_t out_bytes, Work work) {
  World& world = *comm->world;
  if (registry().is_broken) return kRemoteError;
  world.ins[static_cast<size_t>(comm->rank)] = in;
  if (!barrier(world)) return kRemoteError;
  std::vector<std::byte> result(out_bytes);
  const int error = work(world, result.data());
  if (!barrier(world)) return kRemoteError;
  if (error == 0 && out_bytes > 0) std::memcpy(out, result.data(), out_bytes);
  return error;
}

extern "C" {

int yard_fake_get_unique_id(Id* id) {
  std::lock_guard lock(registry().mutex);
  const uint64_t number = ++registry().id_count;
  std::memcpy(id->bytes.data(), &number, sizeof number);
  return 0;
}

int yard_fake_comm_init_rank(Comm** comm, int size, Id id, int rank) {
  uint64_t number = 0;
  std::memcpy(&number, id.bytes.data(), sizeof number);
  auto* made = new Comm;
  made->rank = rank;
  {
    std::lock_guard lock(registry().mutex);
    auto& world = registry().worlds[number];
    if (!world) {
      world = std::make_shared<World>();
      world->size = size;
      world->ins.resize(static_cast<size_t>(size));
    }
    made->world = world;
  }
  *comm = made;
  return barrier(*made->world) ? 0 : kRemoteError;
}

int yard_fake_comm_destroy(Comm* comm) {
  delete comm;
  return 0;
}

int yard_fake_comm_abort(Comm* comm) {
  {
    std::lock_guard lock(comm->world->mutex);
    comm->world->is_aborted = true;
    comm->world->changed.notify_all();
  }
  delete comm;
  return 0;
}

int yard_fake_comm_get_async_error(Comm*, int* state) {
  *state = registry().is_broken ? kRemoteError : 0;
  return 0;
}

const char* yard_fake_get_error_string(int error) {
  return error == kRemoteError ? "remote process exited" : "invalid argument";
}

int yard_fake_all_reduce(const void* in, void* out, size_t count, int type, int op, Comm* comm,
                         void*) {
  return together(comm, in, out, count * bytes_of_type(type), [&](World& world, void* to) {
    return reduce_typed(world, to, 0, count, type, op);
  });
}

int yard_fake_reduce(const void* in, void* out, size_t count, int type, int op, int root,
                     Comm* comm, void*) {
  const size_t out_bytes = comm->rank == root ? count * bytes_of_type(type) : 0;
  return together(comm, in, out, out_bytes, [&](World& world, void* to) {
    return out_bytes == 0 ? 0 : reduce_typed(world, to, 0, count, type, op);
  });
}

int yard_fake_reduce_scatter(const void* in, void* out, size_t count, int type, int op, Comm* comm,
                             void*) {
  return together(comm, in, out, count * bytes_of_type(type), [&](World& world, void* to) {
    return reduce_typed(world, to, count * static_cast<size_t>(comm->rank), count, type, op);
  });
}

int yard_fake_all_gather(const void* in, void* out, size_t count, int type, Comm* comm, void*) {
  const size_t part_bytes = count * bytes_of_type(type);
  return together(comm, in, out, part_bytes * static_cast<size_t>(comm->world->size),
                  [&](World& world, void* to) {
                    for (size_t rank = 0; rank < world.ins.size(); ++rank)
                      std::memcpy(static_cast<std::byte*>(to) + rank * part_bytes, world.ins[rank],
                                  part_bytes);
                    return 0;
                  });
}

int yard_fake_broadcast(const void* in, void* out, size_t count, int type, int root, Comm* comm,
                        void*) {
  const size_t size_bytes = count * bytes_of_type(type);
  return together(comm, in, out, size_bytes, [&](World& world, void* to) {
    std::memcpy(to, world.ins[static_cast<size_t>(root)], size_bytes);
    return 0;
  });
}

int yard_fake_send(const void* data, size_t count, int type, int peer, Comm* comm, void*) {
  World& world = *comm->world;
  const auto* bytes = static_cast<const std::byte*>(data);
  std::lock_guard lock(world.mutex);
  world.messages[{comm->rank, peer}].emplace_back(bytes, bytes + count * bytes_of_type(type));
  world.changed.notify_all();
  return 0;
}

int yard_fake_receive(void* data, size_t count, int type, int peer, Comm* comm, void*) {
  World& world = *comm->world;
  std::unique_lock lock(world.mutex);
  auto& queue = world.messages[{peer, comm->rank}];
  world.changed.wait(lock, [&] { return !queue.empty() || world.is_aborted; });
  if (world.is_aborted) return kRemoteError;
  if (queue.front().size() != count * bytes_of_type(type)) return kInvalid;
  std::memcpy(data, queue.front().data(), queue.front().size());
  queue.erase(queue.begin());
  return 0;
}

int yard_fake_group_start() {
  return 0;
}
int yard_fake_group_end() {
  return 0;
}

}  // extern "C"

}  // namespace

ResolveSymbol fake_nccl(const std::string& missing) {
  const auto at = [](auto* function) { return reinterpret_cast<void*>(function); };
  const std::map<std::string, void*> functions = {
      {"ncclGetUniqueId", at(yard_fake_get_unique_id)},
      {"ncclCommInitRank", at(yard_fake_comm_init_rank)},
      {"ncclCommDestroy", at(yard_fake_comm_destroy)},
      {"ncclCommAbort", at(yard_fake_comm_abort)},
      {"ncclCommGetAsyncError", at(yard_fake_comm_get_async_error)},
      {"ncclGetErrorString", at(yard_fake_get_error_string)},
      {"ncclAllReduce", at(yard_fake_all_reduce)},
      {"ncclReduce", at(yard_fake_reduce)},
      {"ncclReduceScatter", at(yard_fake_reduce_scatter)},
      {"ncclAllGather", at(yard_fake_all_gather)},
      {"ncclBroadcast", at(yard_fake_broadcast)},
      {"ncclSend", at(yard_fake_send)},
      {"ncclRecv", at(yard_fake_receive)},
      {"ncclGroupStart", at(yard_fake_group_start)},
      {"ncclGroupEnd", at(yard_fake_group_end)}};
  return [functions, missing](const char* name) -> void* {
    const auto found = functions.find(name);
    return found == functions.end() || name == missing ? nullptr : found->second;
  };
}

void break_fake_nccl(bool is_broken) {
  registry().is_broken = is_broken;
}

}  // namespace yard::collective
