#include "collective/hardware.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <ifaddrs.h>
#include <linux/if.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <set>

#include "base/file.h"
#include "base/ids.h"
#include "base/units.h"
#include "collective/nvml_internal.h"

namespace yard::collective {
namespace {

std::vector<int> cpus_of(hwloc_const_cpuset_t set) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
    cpus.push_back(cpu);
  return cpus;
}

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, DestroyTopology>;

Result<HwlocTopology> load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Error{Code::kUnavailable, "hwloc does not start"};
  HwlocTopology topology(raw);
  if (hwloc_topology_load(raw) != 0)
    return Error{Code::kUnavailable, "hwloc cannot read this host's hardware"};
  return topology;
}

std::vector<NumaNode> numa_nodes_of(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  for (hwloc_obj_t node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, nullptr); node;
       node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node))
    nodes.push_back({.index = static_cast<int>(node->os_index),
                     .cpus = cpus_of(node->cpuset),
                     .memory_bytes = node->attr->numanode.local_memory});
  return nodes;
}

std::vector<SharedCache> caches_of(hwloc_topology_t topology) {
  std::vector<SharedCache> caches;
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE})
    for (hwloc_obj_t cache = hwloc_get_next_obj_by_type(topology, type, nullptr); cache;
         cache = hwloc_get_next_obj_by_type(topology, type, cache)) {
      SharedCache shared{.level = static_cast<int>(cache->attr->cache.depth),
                         .size_bytes = cache->attr->cache.size,
                         .cpus = cpus_of(cache->cpuset)};
      if (shared.cpus.size() > 1) caches.push_back(std::move(shared));
    }
  return caches;
}

// A file of sysfs with one number; -1 when there is none.
int64_t number_in(const std::string& path) {
  const auto text = read_file(path, 64);
  int64_t number = -1;
  if (text) std::from_chars(text->data(), text->data() + text->size(), number);
  return number;
}

std::map<std::string, std::vector<std::string>> addresses_by_card() {
  std::map<std::string, std::vector<std::string>> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* each = list; each; each = each->ifa_next) {
    if (!each->ifa_addr || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    auto& of_card = addresses[each->ifa_name];
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> text{};
    const socklen_t size_bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(each->ifa_addr, size_bytes, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0)
      of_card.emplace_back(text.data());
  }
  ::freeifaddrs(list);
  return addresses;
}

std::vector<NetworkCard> network_cards() {
  std::vector<NetworkCard> cards;
  for (auto& [name, addresses] : addresses_by_card()) {
    const std::string folder = "/sys/class/net/" + name + "/";
    const auto state = read_file(folder + "operstate", 64);
    cards.push_back({.name = name,
                     .megabits_per_s = number_in(folder + "speed"),
                     .numa_node = static_cast<int>(number_in(folder + "device/numa_node")),
                     .is_up = state && state->starts_with("up"),
                     .addresses = std::move(addresses)});
  }
  return cards;
}

// "0-3,8" for {0, 1, 2, 3, 8}.
std::string ranges_of(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

int closeness(const Gpu& a, const Gpu& b) {
  const bool linked =
      std::find(a.linked_to.begin(), a.linked_to.end(), b.index) != a.linked_to.end();
  return (linked ? 2 : 0) + (a.numa_node >= 0 && a.numa_node == b.numa_node ? 1 : 0);
}

std::vector<int> part_of(const std::vector<int>& cpus, size_t index, size_t count) {
  if (cpus.size() < count) return {cpus[index % cpus.size()]};
  const size_t begin = cpus.size() * index / count;
  const size_t end = cpus.size() * (index + 1) / count;
  return {cpus.begin() + static_cast<std::ptrdiff_t>(begin),
          cpus.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

// Ranks that agree in all of this can map each other's memory and meet on an abstract socket. One
// that cannot tell who it is shares with nobody.
std::string host_identity() {
  auto boot_id = read_file("/proc/sys/kernel/random/boot_id", 4096);
  if (!boot_id) return random_name(32);
  std::string identity = *boot_id + fmt::format(" uid {}", ::geteuid());
  for (const char* name : {"ipc", "net"}) {
    std::array<char, 64> link{};
    const std::string path = fmt::format("/proc/self/ns/{}", name);
    if (::readlink(path.c_str(), link.data(), link.size() - 1) <= 0) return random_name(32);
    identity += fmt::format(" {}", link.data());
  }
  return identity;
}

Result<HostHardware> read_host_hardware() {
  YARD_ASSIGN(const HwlocTopology topology, load());
  HostHardware hardware;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) hardware.name = name.data();
  hardware.identity = host_identity();
  hardware.package_count = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PACKAGE);
  hardware.core_count = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE);
  hardware.cpus = cpus_of(hwloc_topology_get_allowed_cpuset(topology.get()));
  hardware.numa_nodes = numa_nodes_of(topology.get());
  hardware.caches = caches_of(topology.get());
  hardware.gpus = read_gpus();
  for (Gpu& gpu : hardware.gpus)
    gpu.numa_node =
        static_cast<int>(number_in("/sys/bus/pci/devices/" + gpu.bus_id + "/numa_node"));
  hardware.network_cards = network_cards();
  return hardware;
}

std::string describe(const HostHardware& hardware) {
  std::string text =
      fmt::format("{}: {} packages, {} cores, CPUs {}\n", hardware.name, hardware.package_count,
                  hardware.core_count, ranges_of(hardware.cpus));
  for (const NumaNode& node : hardware.numa_nodes)
    text += fmt::format("  NUMA node {}: {}, CPUs {}\n", node.index,
                        format_size_bytes(node.memory_bytes), ranges_of(node.cpus));
  for (const SharedCache& cache : hardware.caches)
    text += fmt::format("  L{} cache: {}, CPUs {}\n", cache.level,
                        format_size_bytes(cache.size_bytes), ranges_of(cache.cpus));
  for (const Gpu& gpu : hardware.gpus)
    text += fmt::format("  GPU {}: {}, {}, {}{}, links to {}\n", gpu.index, gpu.name,
                        format_size_bytes(gpu.memory_bytes), gpu.bus_id,
                        gpu.numa_node < 0 ? "" : fmt::format(", NUMA node {}", gpu.numa_node),
                        gpu.linked_to.empty() ? "none" : ranges_of(gpu.linked_to));
  if (hardware.gpus.empty()) text += "  no GPU\n";
  for (const NetworkCard& card : hardware.network_cards)
    text += fmt::format(
        "  network {}: {}, {}, {}\n", card.name, card.is_up ? "up" : "not up",
        card.megabits_per_s < 0 ? "speed unknown" : fmt::format("{} Mbit/s", card.megabits_per_s),
        card.addresses.empty() ? "no address" : fmt::format("{}", fmt::join(card.addresses, " ")));
  return text;
}

std::vector<int> gpu_order(const std::vector<Gpu>& gpus) {
  std::vector<int> order;
  std::set<size_t> left;
  for (size_t i = 0; i < gpus.size(); ++i) left.insert(i);
  size_t last = 0;
  while (!left.empty()) {
    // The first is the first; ties go to the lower number.
    const size_t next =
        order.empty() ? *left.begin()
                      : *std::max_element(left.begin(), left.end(), [&](size_t a, size_t b) {
                          return closeness(gpus[last], gpus[a]) < closeness(gpus[last], gpus[b]);
                        });
    order.push_back(gpus[next].index);
    left.erase(next);
    last = next;
  }
  return order;
}

std::vector<int> cpus_of_rank(const HostHardware& hardware, int local_rank, int local_count) {
  YARD_CHECK(0 <= local_rank && local_rank < local_count);
  if (hardware.cpus.empty()) return {};
  const auto rank = static_cast<size_t>(local_rank);
  const auto count = static_cast<size_t>(local_count);
  // NUMA nodes with CPUs that we may use.
  std::vector<std::vector<int>> nodes;
  std::map<int, size_t> place_of_node;
  for (const NumaNode& node : hardware.numa_nodes) {
    std::vector<int> usable;
    std::set_intersection(node.cpus.begin(), node.cpus.end(), hardware.cpus.begin(),
                          hardware.cpus.end(), std::back_inserter(usable));
    if (usable.empty()) continue;
    place_of_node[node.index] = nodes.size();
    nodes.push_back(std::move(usable));
  }
  if (nodes.size() < 2) return part_of(hardware.cpus, rank, count);
  // Which node each rank belongs to; those of one node share it evenly.
  const std::vector<int> order = gpu_order(hardware.gpus);
  const auto node_of = [&](size_t each) {
    if (each < order.size()) {
      const auto gpu = std::find_if(hardware.gpus.begin(), hardware.gpus.end(),
                                    [&](const Gpu& g) { return g.index == order[each]; });
      if (const auto found = place_of_node.find(gpu->numa_node); found != place_of_node.end())
        return found->second;
    }
    return each * nodes.size() / count;
  };
  size_t index = 0, sharing = 0;
  for (size_t each = 0; each < count; ++each) {
    if (node_of(each) != node_of(rank)) continue;
    if (each < rank) ++index;
    ++sharing;
  }
  if (count >= nodes.size()) return part_of(nodes[node_of(rank)], index, sharing);
  // Fewer ranks than nodes: each takes several.
  std::vector<int> cpus;
  for (size_t node = nodes.size() * rank / count; node < nodes.size() * (rank + 1) / count; ++node)
    cpus.insert(cpus.end(), nodes[node].begin(), nodes[node].end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

}  // namespace yard::collective
