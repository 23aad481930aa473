// HostNetwork: the network of one host of a job: a namespace of its own, on a bridge that the hosts
// of the job share. Two jobs may bind the same port, and cannot reach each other.
//
// A job's bridge and each host's pair of interfaces have names made of the job's folder. Addresses
// are a block of 10.213.0.0/16 that no other interface of the machine has; the machine itself is
// the first of it. Outward it goes where nft or iptables are installed (masquerading for the whole
// range); what else is needed of this machine is forwarded, see PortForwarder. One lock for the
// machine orders all that makes or removes bridges.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace yard::sandbox {

struct NetworkOptions {
  std::string job_dir;             // names the network
  std::string host;                // ours
  std::vector<std::string> hosts;  // of the job, all of them, in one order for all
  std::string lock_path = "/run/lock/trainyard-network.lock";
};

// A block of addresses, as 10.213.0.8/29. Pure.
struct AddressBlock {
  uint32_t first = 0;
  int prefix_bits = 32;
  std::string gateway() const;           // the machine's own address in it
  std::string host(size_t index) const;  // of the host with that number
  bool overlaps(const AddressBlock& other) const;
};
// kInvalidArgument: no "a.b.c.d/n".
Result<AddressBlock> parse_block(std::string_view text);
// The smallest block for so many hosts that overlaps none of `taken`. kExhausted: none is left.
Result<AddressBlock> choose_block(size_t host_count, const std::vector<AddressBlock>& taken);

// Interfaces have names of 15 bytes at most: "yb" and "yv" with a hash.
std::string bridge_name(const std::string& job_dir);
std::string interface_name(const std::string& job_dir, const std::string& host);

// Not thread-safe.
class HostNetwork {
 public:
  // Needs root and the programs ip and nsenter. kUnavailable: not here; the message says why.
  static Result<std::unique_ptr<HostNetwork>> open(const NetworkOptions& options);
  // Takes the host off, and the job's bridge with the last one. The namespace ends with its
  // processes.
  ~HostNetwork();

  int fd() const { return namespace_.get(); }
  std::string path() const;  // "/proc/PID/fd/N", for other processes
  const std::map<std::string, std::string>& addresses() const { return addresses_; }
  const std::string& gateway() const { return gateway_; }
  bool reaches_outward() const { return reaches_outward_; }

  // Removes what a killed supervisor of this job left. Ok when there is nothing.
  static Status clean(const NetworkOptions& options);

 private:
  explicit HostNetwork(NetworkOptions options) : options_(std::move(options)) {}
  Status set_up();

  const NetworkOptions options_;
  UniqueFd namespace_;
  std::map<std::string, std::string> addresses_;
  std::string gateway_;
  bool reaches_outward_ = false;
};

}  // namespace yard::sandbox
