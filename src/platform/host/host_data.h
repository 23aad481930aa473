// The data of one host of a job: what is fetched before its program starts, kept in the store while
// it runs, and sent when it has ended.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "channels/channel_set.h"
#include "channels/checkpoint_sync.h"
#include "jobs/host_plan.h"

namespace yard::host {

struct HostDataOptions {
  const jobs::HostPlan* plan = nullptr;
  jobs::HostFolder folder;
  channels::OpenUrl open;
  channels::DownloadCache* cache = nullptr;  // of what the job before this one downloaded
  std::chrono::milliseconds checkpoint_period{2'000};
  std::function<void(bool is_behind)> on_behind;
};

// A folder of this machine at another place of the sandbox than below /opt/ml.
struct OutsideFolder {
  std::string directory;
  std::string target;
  bool is_writable = false;
};

struct HostInput {
  std::vector<std::unique_ptr<channels::ChannelSet>> channels;
  // Of checkpoints, and of processing outputs that are uploaded continuously.
  std::vector<std::unique_ptr<channels::CheckpointSync>> syncs;
  std::vector<OutsideFolder> outside;
};

// Channels, or processing inputs; checkpoints; the source of script mode, unpacked into
// /opt/ml/code. The codes of ChannelSet::open() and unpack_tar(); the failing part is named.
Status fetch_input(const HostDataOptions& options, const StopToken& stop,
                   channels::ChannelProgress& progress, HostInput& input);

// Model and output, or processing outputs. Sets their URIs in `status`.
Status send_results(const HostDataOptions& options, const StopToken& stop,
                    jobs::HostStatus& status);

// s3://bucket/out/JOB/output/model.tar.gz, or .../model/ without compression. Pure.
std::string result_uri(const jobs::HostPlan& plan, const std::string& name);

}  // namespace yard::host
