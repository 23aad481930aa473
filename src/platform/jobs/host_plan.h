// HostPlan: all that the supervisor of one host of a platform job is told (plan.json), and
// HostStatus: all that it tells (status.json). The JSON is in docs/formats/host-plan.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace yard::jobs {

enum class HostJobKind { kTraining, kProcessing };

struct PlanHost {
  std::string name;  // "algo-1"
  // Empty: the hosts of the job share this machine and agree on addresses.
  std::string address = {};
  std::string group = "homogeneousCluster";
  std::string instance_type = {};
};

// Where "the image" comes from: one of the two.
struct PlanRuntime {
  std::string python;  // a virtual environment; everything else is this machine's, read-only
  std::string root;    // a folder that becomes the sandbox's "/", read-only
};

struct PlanChannel {
  Json config;                 // an item of the request's InputDataConfig, verbatim
  std::string directory = {};  // of a FileSystemDataSource: what its id means on this machine
};

struct PlanCheckpoint {
  std::string s3_uri = {};  // empty: no checkpoints
  std::string local_path = "/opt/ml/checkpoints";
};

struct PlanOutput {
  std::string s3_uri = {};  // the request's S3OutputPath; empty: nothing is uploaded
  bool compress = true;
};

// What a host must show before it gets a job; 0 asks for nothing.
struct PlanHealth {
  double cpu_gflops_min = 0;               // of one core, multiplying and adding doubles
  double memory_bytes_per_second_min = 0;  // copied by one core
  double disk_bytes_per_second_min = 0;    // written to the job's folder
  uint64_t free_bytes_min = uint64_t{1} << 30;
  double clock_skew_s_max = 60;  // against the store's clock
  int gpu_count_min = 0;
  double collective_bytes_per_second_min = 0;  // between this host and its best peer of the job
};

// How the supervisor decides on a network of its own for this host.
enum class PlanNetwork {
  kAuto,    // own where the machine allows it (root), else shared
  kOwn,     // own, or the host fails
  kShared,  // this machine's: two jobs cannot bind one port
};

struct HostPlan {
  HostJobKind kind = HostJobKind::kTraining;
  std::string job;
  std::string arn;
  std::string region;
  int attempt = 1;
  std::string host;                 // our own name, one of `hosts`
  std::vector<PlanHost> hosts;      // of the job, in any order
  std::vector<int> cores;           // empty: all
  std::vector<int> gpus;            // as the driver numbers them
  uint64_t memory_limit_bytes = 0;  // 0: none
  uint64_t volume_limit_bytes = 0;  // of what the job writes; 0: none
  PlanNetwork network = PlanNetwork::kAuto;
  // Hosts with the same one share a network; empty: that of the job's folder.
  std::string network_dir;
  // The script starts only at the word "go", which comes once every host is ready.
  bool waits_for_go = false;
  double hang_after_s = 0;  // without any sign of life from the script; 0: never
  // So many median steps without the end of one, at least hang_after_s; 0: never.
  double hang_after_steps = 0;

  std::string image;  // as the request names it, for messages
  PlanRuntime runtime;
  std::vector<std::string> entrypoint;  // empty: the script mode of the training toolkit
  std::vector<std::string> arguments;
  std::map<std::string, std::string> hyperparameters;  // verbatim
  std::map<std::string, std::string> environment;
  std::string input_mode = "File";
  std::vector<PlanChannel> channels;
  PlanCheckpoint checkpoint;
  PlanOutput output;
  Json processing_inputs = Json::array();   // ProcessingInputs, verbatim
  Json processing_outputs = Json::array();  // ProcessingOutputConfig.Outputs, verbatim
  Json request = Json::object();            // the whole request, for processingjobconfig.json

  std::string store_endpoint;  // empty: what the supervisor's environment says
  std::string store_region;
  std::string log_dir;         // the stream is LOG_DIR/HOST.log
  int processes_per_host = 0;  // 0: as many as GPUs, 1 without
  double stop_grace_s = 120;   // from SIGTERM to SIGKILL
  PlanHealth health;
  // The /opt/ml/model and /opt/ml/output/data of all hosts, where this host packs them for all
  // (algo-1 does); empty: it uploads none. HostFolder::model() and output_data() of each host.
  std::vector<std::string> model_dirs;
  std::vector<std::string> output_dirs;
};

inline constexpr int kHostPlanVersion = 1;
inline constexpr size_t kPlanHostCountMax = 1024;

// kInvalidArgument, the key named, for what docs/formats/host-plan.md rules out.
Status check_host_plan(const HostPlan& plan);
Json to_json(const HostPlan& plan);
// Checked. `what` names the document in errors.
Result<HostPlan> host_plan_from_json(const Json& json, std::string_view what);

// "algo-1", "algo-10", "algo-2", ...: the order in which SageMaker gives ranks.
std::vector<std::string> sorted_host_names(const HostPlan& plan);
// Of plan.host in that order.
int host_rank(const HostPlan& plan);
const PlanHost& own_host(const HostPlan& plan);

// Where the files of a host lie: JOB_DIR/hosts/algo-1.
struct HostFolder {
  std::string dir;

  std::string plan() const { return dir + "/plan.json"; }
  std::string status() const { return dir + "/status.json"; }
  std::string control() const { return dir + "/control"; }  // FIFO, made by the supervisor
  std::string lock() const { return dir + "/lock"; }        // held while a supervisor runs
  std::string events() const { return dir + "/events.jsonl"; }
  std::string supervisor_log() const { return dir + "/supervisor.log"; }
  std::string ml() const { return dir + "/ml"; }        // the job's /opt/ml
  std::string next() const { return dir + "/next"; }    // made for the job after this one
  std::string cache() const { return dir + "/cache"; }  // downloads of the job before this one
  std::string model() const { return dir + "/ml/model"; }
  std::string output_data() const { return dir + "/ml/output/data"; }
};

// In this order; a phase may be left out, none comes twice.
enum class HostPhase {
  kHealth,
  kDownload,  // channels, checkpoint, source
  kStart,
  kTraining,
  kFinished,  // the script has ended; waits for the word "upload" or "release"
  kUpload,
  kEnded,
};
std::string_view to_string(HostPhase phase);

enum class HostOutcome { kNone, kCompleted, kFailed, kStopped };
std::string_view to_string(HostOutcome outcome);

// Why a host did not complete.
enum class HostCause {
  kNone,
  kUserError,    // the script's or the request's fault: doing it again gives the same
  kHostFault,    // this machine's: another host may do it
  kUnavailable,  // the store or a peer was lost
  kStopped,
  kHang,  // the script gave no sign of life
};
std::string_view to_string(HostCause cause);

struct PhaseChange {
  HostPhase phase = HostPhase::kHealth;
  double t = 0;  // Unix seconds
};

struct HostStatus {
  HostPhase phase = HostPhase::kHealth;
  std::vector<PhaseChange> phases;
  HostOutcome outcome = HostOutcome::kNone;  // known from kFinished on
  int exit_code = 0;                         // of the script
  std::string failure_reason;                // SageMaker's FailureReason, whole
  HostCause cause = HostCause::kNone;
  uint64_t downloaded_bytes = 0;
  uint64_t total_bytes = 0;   // to download
  uint64_t cached_bytes = 0;  // of downloaded_bytes: they were here already
  std::string model_uri;      // set by the host that packs
  std::string output_uri;
  bool checkpoint_behind = false;  // the upload of checkpoints does not keep up
  uint64_t checkpoint_bytes = 0;   // uploaded so far
  bool has_own_network = false;
  bool is_ready = false;  // only "go" is missing
  bool is_kept = false;   // ended, and the supervisor waits for the next folder: "keep"
  int supervisor_pid = 0;
  uint64_t supervisor_start_ticks = 0;  // see host::ProcessId
  double updated_t = 0;
};

Json to_json(const HostStatus& status);
Result<HostStatus> host_status_from_json(const Json& json, std::string_view what);

}  // namespace yard::jobs
