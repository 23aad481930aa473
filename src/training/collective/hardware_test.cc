#include "collective/hardware.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "collective/nvml_internal.h"

namespace yard::collective {
namespace {

TEST(HardwareTest, ThisHostHasCpusMemoryAndAnIdentity) {
  auto hardware = read_host_hardware();
  ASSERT_TRUE(hardware) << hardware.error().message;
  EXPECT_FALSE(hardware->cpus.empty());
  ASSERT_FALSE(hardware->numa_nodes.empty());
  EXPECT_GT(hardware->numa_nodes[0].memory_bytes, uint64_t{1} << 20);
  EXPECT_EQ(hardware->identity, host_identity());
  EXPECT_NE(describe(*hardware).find("NUMA node"), std::string::npos) << describe(*hardware);
  for (const NetworkCard& card : hardware->network_cards) EXPECT_NE(card.name, "lo");
}

HostHardware two_nodes(int cpus_per_node) {
  HostHardware hardware;
  for (int node = 0; node < 2; ++node) {
    NumaNode& added = hardware.numa_nodes.emplace_back();
    added.index = node;
    for (int i = 0; i < cpus_per_node; ++i) {
      added.cpus.push_back(node * cpus_per_node + i);
      hardware.cpus.push_back(added.cpus.back());
    }
  }
  return hardware;
}

TEST(HardwareTest, RanksOfAHostShareItsCpusWithoutOverlapWithinNodes) {
  const HostHardware hardware = two_nodes(6);
  for (const int count : {2, 3, 4, 6, 12}) {
    std::set<int> seen;
    size_t given = 0;
    for (int rank = 0; rank < count; ++rank) {
      const auto cpus = cpus_of_rank(hardware, rank, count);
      ASSERT_FALSE(cpus.empty());
      EXPECT_EQ(cpus.front() / 6, cpus.back() / 6) << "rank " << rank << " spans nodes";
      given += cpus.size();
      seen.insert(cpus.begin(), cpus.end());
    }
    EXPECT_EQ(given, seen.size());
    EXPECT_EQ(seen.size(), 12u);
  }
  EXPECT_EQ(cpus_of_rank(hardware, 0, 1), hardware.cpus);
  EXPECT_EQ(cpus_of_rank(hardware, 16, 17).size(), 1u);  // more ranks than CPUs
}

TEST(HardwareTest, CpusThatWeMayNotUseAreGivenToNobody) {
  HostHardware hardware = two_nodes(4);
  hardware.cpus = {1, 2};
  EXPECT_EQ(cpus_of_rank(hardware, 0, 2), std::vector<int>{1});
  EXPECT_EQ(cpus_of_rank(hardware, 1, 2), std::vector<int>{2});
}

TEST(HardwareTest, ARankIsNearItsGpu) {
  HostHardware hardware = two_nodes(4);
  // Rank 0 has GPU 0, whose neighbour by NVLink is GPU 2: that is rank 1's.
  hardware.gpus = {{.index = 0, .numa_node = 1, .linked_to = {2}},
                   {.index = 1, .numa_node = 0, .linked_to = {3}},
                   {.index = 2, .numa_node = 1, .linked_to = {0}},
                   {.index = 3, .numa_node = 0, .linked_to = {1}}};
  EXPECT_EQ(gpu_order(hardware.gpus), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(cpus_of_rank(hardware, 0, 4), (std::vector<int>{4, 5}));
  EXPECT_EQ(cpus_of_rank(hardware, 1, 4), (std::vector<int>{6, 7}));
  EXPECT_EQ(cpus_of_rank(hardware, 2, 4), (std::vector<int>{0, 1}));
}

TEST(HardwareTest, GpusWithoutLinksAreOrderedByNode) {
  const std::vector<Gpu> gpus = {{.index = 0, .numa_node = 0},
                                 {.index = 1, .numa_node = 1},
                                 {.index = 2, .numa_node = 0},
                                 {.index = 3, .numa_node = 1}};
  EXPECT_EQ(gpu_order(gpus), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(gpu_order({}), std::vector<int>{});
}

// ---- a management library of two GPUs joined by a link, and one apart

struct FakePci {
  char bus_id_legacy[16];
  unsigned numbers[5];
  char bus_id[32];
};

extern "C" {
int fake_init() {
  return 0;
}
int fake_count(unsigned* count) {
  return *count = 3, 0;
}
int fake_handle(unsigned index, void** device) {
  return *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index + 1)), 0;
}
int fake_name(void* device, char* name, unsigned) {
  std::strcpy(name, reinterpret_cast<uintptr_t>(device) == 3 ? "Lone" : "Twin");
  return 0;
}
int fake_pci(void* device, FakePci* pci) {
  std::strcpy(pci->bus_id, "00000000:0A:00.0");
  pci->bus_id[10] = static_cast<char>('A' + reinterpret_cast<uintptr_t>(device) - 1);
  return 0;
}
int fake_memory(void*, unsigned long long* memory) {
  return memory[0] = 80ull << 30, 0;
}
int fake_link_state(void* device, unsigned link, unsigned* is_active) {
  if (link > 3) return 2;  // "not supported"
  return *is_active = reinterpret_cast<uintptr_t>(device) < 3 && link == 1, 0;
}
int fake_link_end(void* device, unsigned, FakePci* pci) {
  return fake_pci(reinterpret_cast<void*>(3 - reinterpret_cast<uintptr_t>(device)), pci);
}
}

TEST(NvmlTest, GpusAndTheirLinksAreRead) {
  const std::map<std::string, void*> functions = {
      {"nvmlInit_v2", reinterpret_cast<void*>(fake_init)},
      {"nvmlDeviceGetCount_v2", reinterpret_cast<void*>(fake_count)},
      {"nvmlDeviceGetHandleByIndex_v2", reinterpret_cast<void*>(fake_handle)},
      {"nvmlDeviceGetName", reinterpret_cast<void*>(fake_name)},
      {"nvmlDeviceGetPciInfo_v3", reinterpret_cast<void*>(fake_pci)},
      {"nvmlDeviceGetMemoryInfo", reinterpret_cast<void*>(fake_memory)},
      {"nvmlDeviceGetNvLinkState", reinterpret_cast<void*>(fake_link_state)},
      {"nvmlDeviceGetNvLinkRemotePciInfo_v2", reinterpret_cast<void*>(fake_link_end)}};
  const auto gpus = read_gpus([&](const char* name) -> void* {
    const auto found = functions.find(name);
    return found == functions.end() ? nullptr : found->second;
  });
  ASSERT_EQ(gpus.size(), 3u);
  EXPECT_EQ(gpus[0].name, "Twin");
  EXPECT_EQ(gpus[0].bus_id, "0000:0a:00.0");
  EXPECT_EQ(gpus[0].memory_bytes, uint64_t{80} << 30);
  EXPECT_EQ(gpus[0].linked_to, std::vector<int>{1});
  EXPECT_EQ(gpus[1].linked_to, std::vector<int>{0});
  EXPECT_TRUE(gpus[2].linked_to.empty());
}

TEST(NvmlTest, WithoutTheLibraryThereAreNoGpus) {
  EXPECT_TRUE(read_gpus([](const char*) -> void* { return nullptr; }).empty());
}

}  // namespace
}  // namespace yard::collective
