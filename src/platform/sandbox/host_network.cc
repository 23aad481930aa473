#include "sandbox/host_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "base/subprocess.h"

namespace yard::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kRangeFirst = (10U << 24) | (213U << 16);
constexpr int kRangeBits = 16;
constexpr std::string_view kRange = "10.213.0.0/16";
constexpr int kBlockBitsMax = 29;  // of the smallest block: eight addresses
constexpr std::string_view kBridgePrefix = "yb";
constexpr std::chrono::seconds kProgramTimeout{20};
constexpr uint64_t kAnswerBytesMax = uint64_t{16} << 20;

std::string to_text(uint32_t address) {
  return fmt::format("{}.{}.{}.{}", address >> 24, (address >> 16) & 255, (address >> 8) & 255,
                     address & 255);
}

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

std::string hashed(std::string_view prefix, const std::string& text) {
  return fmt::format("{}{:012x}", prefix, fnv1a(text) & 0xffffffffffffULL);
}

Result<UniqueFd> memory_file(std::string_view content) {
  UniqueFd fd(::memfd_create("trainyard", MFD_CLOEXEC));
  if (!fd.valid()) return errno_error("memfd", errno);
  while (!content.empty()) {
    const ssize_t put = ::write(fd.get(), content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno_error("memfd", errno);
    content.remove_prefix(size_t(put));
  }
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) return errno_error("memfd", errno);
  return fd;
}

Result<std::string> content_of(const UniqueFd& file) {
  std::string content;
  std::array<char, 65536> buffer;
  ssize_t got = 0;
  while ((got = ::pread(file.get(), buffer.data(), buffer.size(), off_t(content.size()))) > 0 &&
         content.size() < kAnswerBytesMax)
    content.append(buffer.data(), size_t(got));
  if (got < 0) return errno_error("output of a program", errno);
  return content;
}

// What it printed. kUnavailable with its complaint when it fails.
Result<std::string> run_program(const std::vector<std::string>& argv, std::string_view input = {}) {
  YARD_ASSIGN(const UniqueFd in, memory_file(input));
  YARD_ASSIGN(const UniqueFd out, memory_file({}));
  YARD_ASSIGN(const UniqueFd err, memory_file({}));
  SubprocessOptions options;
  options.argv = argv;
  options.env = {{"PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"}};
  options.stdin_fd = in.get();
  options.stdout_fd = out.get();
  options.stderr_fd = err.get();
  auto child = Subprocess::spawn(options);
  if (!child) return Error{Code::kUnavailable, child.error().message};
  YARD_ASSIGN(const ExitStatus exit, child->wait(kProgramTimeout));
  if (exit.ok()) return content_of(out);
  YARD_ASSIGN(std::string complaint, content_of(err));
  while (complaint.ends_with('\n')) complaint.pop_back();
  return Error{Code::kUnavailable, fmt::format("{}: {}", fmt::join(argv, " "), complaint)};
}

Status run_ip(const std::string& commands) {
  YARD_TRY(run_program({"ip", "-batch", "-"}, commands));
  return Ok{};
}

Result<UniqueFd> lock_machine(const std::string& path) {
  YARD_TRY(make_directories(fs::path(path).parent_path()));
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return errno_error(path, errno);
  while (::flock(fd.get(), LOCK_EX) != 0)
    if (errno != EINTR) return errno_error(path, errno);
  return fd;
}

Result<UniqueFd> new_namespace() {
  Result<UniqueFd> made = Error{Code::kInternal, "no thread"};
  std::thread inside([&] {
    UniqueFd fd;
    if (::unshare(CLONE_NEWNET) == 0)
      fd.reset(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (fd.valid())
      made = std::move(fd);
    else
      made = Error{Code::kUnavailable, errno_error("a network namespace", errno).message};
  });
  inside.join();
  return made;
}

bool exists(const std::string& interface) {
  std::error_code error;
  return fs::exists("/sys/class/net/" + interface, error);
}

bool has_ports(const std::string& bridge) {
  std::error_code error;
  const fs::directory_iterator ports("/sys/class/net/" + bridge + "/brif", error);
  return !error && ports != fs::directory_iterator();
}

std::vector<std::string> our_bridges() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/class/net", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kBridgePrefix) && name.size() == kBridgePrefix.size() + 12 &&
        fs::exists(entry.path() / "bridge", error))
      names.push_back(name);
  }
  return names;
}

// The kernel lists an interface that it takes away as a port for a moment longer.
void wait_until_gone(const std::string& bridge, const std::string& interface) {
  constexpr int kLooksMax = 200;
  std::error_code error;
  const std::string port = "/sys/class/net/" + bridge + "/brif/" + interface;
  for (int i = 0; i < kLooksMax && fs::exists(fs::symlink_status(port, error)); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// Bridges get their first port under the lock: one without was left by a supervisor that was
// killed.
void remove_unused_bridges() {
  for (const std::string& name : our_bridges())
    if (!has_ports(name))
      if (const auto done = run_ip(fmt::format("link del {}\n", name)); !done)
        log_warning("{}", done.error().message);
}

struct InterfaceBlock {
  std::string interface;
  AddressBlock block;
};

Result<std::vector<InterfaceBlock>> blocks_of_machine() {
  YARD_ASSIGN(const std::string text, run_program({"ip", "-json", "-4", "addr", "show"}));
  YARD_ASSIGN(const Json list, parse_json(text, "ip addr"));
  std::vector<InterfaceBlock> blocks;
  for (const Json& item : list) {
    YARD_ASSIGN(const auto name, json_field_or<std::string>(item, "ifname", {}, "ip addr"));
    YARD_ASSIGN(const auto infos,
                json_field_or<std::vector<Json>>(item, "addr_info", {}, "ip addr"));
    for (const Json& info : infos) {
      YARD_ASSIGN(const auto local, json_field_or<std::string>(info, "local", {}, "ip addr"));
      YARD_ASSIGN(const int bits, json_field_or<int>(info, "prefixlen", 32, "ip addr"));
      if (auto block = parse_block(fmt::format("{}/{}", local, bits)))
        blocks.push_back({name, *block});
    }
  }
  return blocks;
}

// The job's bridge, made when this is its first host. Under the lock.
Result<AddressBlock> join_bridge(const std::string& bridge, size_t host_count) {
  YARD_ASSIGN(const auto blocks, blocks_of_machine());
  if (exists(bridge)) {
    const auto found = std::ranges::find(blocks, bridge, &InterfaceBlock::interface);
    if (found != blocks.end()) return found->block;
    YARD_TRY(run_ip(fmt::format("link del {}\n", bridge)));
  }
  std::vector<AddressBlock> taken;
  for (const auto& item : blocks) taken.push_back(item.block);
  YARD_ASSIGN(const AddressBlock block, choose_block(host_count, taken));
  YARD_TRY(
      run_ip(fmt::format("link add {0} type bridge\naddr add {1}/{2} dev {0}\nlink set {0} up\n",
                         bridge, block.gateway(), block.prefix_bits)));
  return block;
}

Status masquerade() {
  const auto by_nft = run_program(
      {"nft", "-f", "-"},
      fmt::format("table ip trainyard {{}}\ndelete table ip trainyard\n"
                  "table ip trainyard {{ chain outward {{ type nat hook postrouting priority 100; "
                  "ip saddr {0} ip daddr != {0} masquerade; }} }}\n",
                  kRange));
  if (!by_nft) {
    const std::vector<std::string> rule = {"POSTROUTING", "-s",        std::string(kRange),
                                           "!",           "-d",        std::string(kRange),
                                           "-j",          "MASQUERADE"};
    std::vector<std::string> check = {"iptables", "-w", "-t", "nat", "-C"};
    check.insert(check.end(), rule.begin(), rule.end());
    if (!run_program(check)) {
      check[4] = "-A";
      if (const auto added = run_program(check); !added)
        return Error{Code::kUnavailable, by_nft.error().message + "; " + added.error().message};
    }
  }
  const UniqueFd forward(::open("/proc/sys/net/ipv4/ip_forward", O_WRONLY | O_CLOEXEC));
  if (!forward.valid() || ::write(forward.get(), "1", 1) != 1)
    return errno_error("net.ipv4.ip_forward", errno);
  return Ok{};
}

void end_masquerade() {
  if (run_program({"nft", "delete", "table", "ip", "trainyard"})) return;
  run_program({"iptables", "-w", "-t", "nat", "-D", "POSTROUTING", "-s", std::string(kRange), "!",
               "-d", std::string(kRange), "-j", "MASQUERADE"})
      .has_value();
}

}  // namespace

std::string AddressBlock::gateway() const {
  return to_text(first + 1);
}

std::string AddressBlock::host(size_t index) const {
  return to_text(first + 2 + uint32_t(index));
}

bool AddressBlock::overlaps(const AddressBlock& other) const {
  const int bits = std::min(prefix_bits, other.prefix_bits);
  return bits == 0 || (first ^ other.first) >> (32 - bits) == 0;
}

Result<AddressBlock> parse_block(std::string_view text) {
  const auto slash = text.find('/');
  in_addr address = {};
  AddressBlock block;
  const std::string head(text.substr(0, slash));
  const std::string_view tail = slash == std::string_view::npos ? "" : text.substr(slash + 1);
  const auto [end, error] =
      std::from_chars(tail.data(), tail.data() + tail.size(), block.prefix_bits);
  if (::inet_pton(AF_INET, head.c_str(), &address) != 1 || error != std::errc() ||
      end != tail.data() + tail.size() || block.prefix_bits < 0 || block.prefix_bits > 32)
    return Error{Code::kInvalidArgument, fmt::format("'{}' is no block of addresses", text)};
  const uint32_t mask = block.prefix_bits == 0 ? 0 : ~uint32_t{0} << (32 - block.prefix_bits);
  block.first = ntohl(address.s_addr) & mask;
  return block;
}

Result<AddressBlock> choose_block(size_t host_count, const std::vector<AddressBlock>& taken) {
  // Beside the hosts: the block's own address, the machine's, and that for all.
  const size_t size = std::bit_ceil(host_count + 3);
  const int bits = std::min(kBlockBitsMax, 32 - std::countr_zero(size));
  if (bits >= kRangeBits) {
    const uint32_t step = uint32_t{1} << (32 - bits);
    const uint32_t range_size = uint32_t{1} << (32 - kRangeBits);
    for (uint32_t offset = 0; offset < range_size; offset += step) {
      const AddressBlock block{kRangeFirst + offset, bits};
      if (std::ranges::none_of(taken, [&](const auto& other) { return block.overlaps(other); }))
        return block;
    }
  }
  return Error{Code::kExhausted, fmt::format("no {} addresses are left in {}", host_count, kRange)};
}

std::string bridge_name(const std::string& job_dir) {
  return hashed(kBridgePrefix, job_dir);
}

std::string interface_name(const std::string& job_dir, const std::string& host) {
  return hashed("yv", job_dir + "\n" + host);
}

std::string HostNetwork::path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), namespace_.get());
}

Result<std::unique_ptr<HostNetwork>> HostNetwork::open(const NetworkOptions& options) {
  YARD_CHECK(std::ranges::find(options.hosts, options.host) != options.hosts.end());
  std::unique_ptr<HostNetwork> network(new HostNetwork(options));
  YARD_TRY(network->set_up());
  return network;
}

Status HostNetwork::set_up() {
  YARD_ASSIGN(namespace_, new_namespace());
  YARD_ASSIGN(const UniqueFd lock, lock_machine(options_.lock_path));
  remove_unused_bridges();
  const std::string bridge = bridge_name(options_.job_dir);
  const std::string outer = interface_name(options_.job_dir, options_.host);
  if (exists(outer)) YARD_TRY(run_ip(fmt::format("link del {}\n", outer)));
  YARD_ASSIGN(const AddressBlock block, join_bridge(bridge, options_.hosts.size()));
  for (size_t i = 0; i < options_.hosts.size(); ++i) addresses_[options_.hosts[i]] = block.host(i);
  gateway_ = block.gateway();
  YARD_TRY(
      run_ip(fmt::format("link add {0} type veth peer name eth0 netns {1}\n"
                         "link set {0} master {2} up\n",
                         outer, path(), bridge)));
  const std::string inner = fmt::format(
      "link set lo up\naddr add {}/{} dev eth0\nlink set eth0 up\n"
      "route add default via {}\n",
      addresses_[options_.host], block.prefix_bits, gateway_);
  YARD_TRY(run_program({"nsenter", "--net=" + path(), "ip", "-batch", "-"}, inner));
  if (const Status outward = masquerade(); outward)
    reaches_outward_ = true;
  else
    log_info("this network reaches the job's hosts and its store, nothing else: {}",
             outward.error().message);
  return Ok{};
}

HostNetwork::~HostNetwork() {
  // While the namespace is held: the kernel takes away the interfaces of one that ends, but later.
  if (const Status cleaned = clean(options_); !cleaned) log_warning("{}", cleaned.error().message);
}

Status HostNetwork::clean(const NetworkOptions& options) {
  YARD_ASSIGN(const UniqueFd lock, lock_machine(options.lock_path));
  const std::string outer = interface_name(options.job_dir, options.host);
  // It may go by itself at this moment, with the namespace of a supervisor that was killed.
  if (const Status removed = run_ip(fmt::format("link del {}\n", outer)); !removed && exists(outer))
    return removed;
  wait_until_gone(bridge_name(options.job_dir), outer);
  remove_unused_bridges();
  if (our_bridges().empty()) end_masquerade();
  return Ok{};
}

}  // namespace yard::sandbox
