#include "host/host_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "channels/results.h"
#include "channels/tar_tree.h"
#include "host/job_layout.h"
#include "host/script_mode.h"

namespace yard::host {
namespace {

namespace fs = std::filesystem;
using jobs::HostPlan;

constexpr int kGzipThreadsMax = 8;

channels::ChannelOptions channel_options(const HostDataOptions& options, const StopToken& stop) {
  const HostPlan& plan = *options.plan;
  channels::ChannelOptions out;
  out.open = options.open;
  out.cache = options.cache;
  out.data_dir = options.folder.ml() + "/input/data";
  out.host_index = size_t(jobs::host_rank(plan));
  out.host_groups.clear();
  for (const std::string& name : jobs::sorted_host_names(plan))
    out.host_groups.push_back(std::ranges::find(plan.hosts, name, &jobs::PlanHost::name)->group);
  out.stop = stop;
  return out;
}

Status fetch_channels(const HostDataOptions& options, const StopToken& stop,
                      channels::ChannelProgress& progress, HostInput& input) {
  const HostPlan& plan = *options.plan;
  std::vector<channels::ChannelConfig> configs;
  for (const jobs::PlanChannel& channel : plan.channels) {
    YARD_ASSIGN(auto config, channels::read_channel(channel, plan.input_mode));
    configs.push_back(std::move(config));
  }
  YARD_ASSIGN(auto set,
              channels::ChannelSet::open(configs, channel_options(options, stop), progress));
  for (const channels::SharedFolder& shared : set->shared_folders())
    input.outside.push_back(
        {shared.directory, "/opt/ml/input/data/" + shared.channel, shared.is_writable});
  input.channels.push_back(std::move(set));
  return Ok{};
}

channels::CheckpointOptions sync_options(const HostDataOptions& options, const StopToken& stop,
                                         const std::string& url, const std::string& folder) {
  channels::CheckpointOptions sync;
  sync.open = options.open;
  sync.url = url;
  sync.folder = folder;
  sync.period = options.checkpoint_period;
  sync.on_behind = options.on_behind;
  sync.stop = stop;
  return sync;
}

// A folder that is restored and kept in the store.
Status add_sync(const HostDataOptions& options, const StopToken& stop, const std::string& url,
                const std::string& folder, channels::ChannelProgress& progress, HostInput& input) {
  YARD_TRY(make_directories(folder));
  YARD_ASSIGN(auto restored, channels::CheckpointSync::restore(
                                 sync_options(options, stop, url, folder), progress));
  input.syncs.push_back(std::move(restored));
  return Ok{};
}

Status fetch_checkpoint(const HostDataOptions& options, const StopToken& stop,
                        channels::ChannelProgress& progress, HostInput& input) {
  const jobs::PlanCheckpoint& checkpoint = options.plan->checkpoint;
  if (checkpoint.s3_uri.empty()) return Ok{};
  auto folder = path_in_ml(options.folder.ml(), checkpoint.local_path);
  if (!folder) {
    folder = options.folder.dir + "/checkpoints";
    std::error_code error;
    fs::remove_all(*folder, error);
    YARD_TRY(make_directories(*folder));
    input.outside.push_back({*folder, checkpoint.local_path, true});
  }
  if (auto done = add_sync(options, stop, checkpoint.s3_uri, *folder, progress, input); !done)
    return std::move(done).error().while_("checkpoints");
  return Ok{};
}

// What the program leaves in /opt/ml/output/intermediate is in the store while it runs.
Status add_intermediate(const HostDataOptions& options, const StopToken& stop, HostInput& input) {
  std::string url = options.plan->output.s3_uri;
  if (url.empty()) return Ok{};
  while (url.ends_with('/')) url.pop_back();
  url += fmt::format("/{}/output/intermediate", options.plan->job);
  YARD_ASSIGN(auto sync, channels::CheckpointSync::of_new(sync_options(
                             options, stop, url, options.folder.ml() + "/output/intermediate")));
  input.syncs.push_back(std::move(sync));
  return Ok{};
}

Status fetch_source(const HostDataOptions& options, const StopToken& stop,
                    channels::ChannelProgress& progress) {
  const HostPlan& plan = *options.plan;
  const std::string source = script_source(decode_hyperparameters(plan.hyperparameters));
  if (!plan.entrypoint.empty() || !source.starts_with("s3://")) return Ok{};
  const std::string code = options.folder.ml() + "/code";
  if (!source.ends_with(".tar.gz"))
    return channels::download_prefix(source, code, channel_options(options, stop), progress);
  const std::string archive_dir = options.folder.dir + "/source";
  YARD_TRY(
      channels::download_prefix(source, archive_dir, channel_options(options, stop), progress));
  const std::string archive = archive_dir + "/" + fs::path(source).filename().string();
  Status unpacked = ::access(archive.c_str(), R_OK) == 0
                        ? channels::unpack_tar(archive, code)
                        : Status(Error{Code::kNotFound, source + ": there is no such object"});
  std::error_code error;
  fs::remove_all(archive_dir, error);
  if (!unpacked) return std::move(unpacked).error().while_("the source");
  return Ok{};
}

// ProcessingInputs are channels whose folders have names of their own.
Status fetch_processing_input(const HostDataOptions& options, const StopToken& stop,
                              const Json& item, channels::ChannelProgress& progress,
                              HostInput& input) {
  YARD_ASSIGN(const auto name, json_field<std::string>(item, "InputName", "processing input"));
  const std::string what = fmt::format("processing input '{}'", name);
  YARD_ASSIGN(const Json s3, json_field<Json>(item, "S3Input", what));
  YARD_ASSIGN(const auto local, json_field<std::string>(s3, "LocalPath", what));
  YARD_ASSIGN(const std::string folder, path_in_ml(options.folder.ml(), local));
  Json source = {{"S3DataType", s3.value("S3DataType", "S3Prefix")},
                 {"S3Uri", s3.value("S3Uri", "")},
                 {"S3DataDistributionType", s3.value("S3DataDistributionType", "FullyReplicated")}};
  const jobs::PlanChannel channel{.config = {{"ChannelName", fs::path(folder).filename().string()},
                                             {"DataSource", {{"S3DataSource", std::move(source)}}},
                                             {"InputMode", s3.value("S3InputMode", "File")}}};
  YARD_ASSIGN(auto config, channels::read_channel(channel, "File"));
  channels::ChannelOptions channel_of = channel_options(options, stop);
  channel_of.data_dir = fs::path(folder).parent_path();
  auto set = channels::ChannelSet::open({config}, channel_of, progress);
  if (!set) return std::move(set).error().while_(what);
  input.channels.push_back(*std::move(set));
  return Ok{};
}

struct ProcessingOutput {
  std::string folder;
  std::string url;
  bool is_continuous = false;
};

Result<std::vector<ProcessingOutput>> processing_outputs(const HostDataOptions& options) {
  std::vector<ProcessingOutput> outputs;
  for (const Json& item : options.plan->processing_outputs) {
    YARD_ASSIGN(const auto name, json_field<std::string>(item, "OutputName", "processing output"));
    const std::string what = fmt::format("processing output '{}'", name);
    if (!item.contains("S3Output")) continue;
    const Json& s3 = item["S3Output"];
    YARD_ASSIGN(const auto local, json_field<std::string>(s3, "LocalPath", what));
    ProcessingOutput output;
    YARD_ASSIGN(output.folder, path_in_ml(options.folder.ml(), local));
    YARD_ASSIGN(output.url, json_field<std::string>(s3, "S3Uri", what));
    output.is_continuous = s3.value("S3UploadMode", "EndOfJob") == "Continuous";
    outputs.push_back(std::move(output));
  }
  return outputs;
}

Status fetch_processing(const HostDataOptions& options, const StopToken& stop,
                        channels::ChannelProgress& progress, HostInput& input) {
  for (const Json& item : options.plan->processing_inputs)
    YARD_TRY(fetch_processing_input(options, stop, item, progress, input));
  YARD_ASSIGN(const auto outputs, processing_outputs(options));
  for (const ProcessingOutput& output : outputs) {
    YARD_TRY(make_directories(output.folder));
    if (output.is_continuous)
      YARD_TRY(add_sync(options, stop, output.url, output.folder, progress, input));
  }
  return Ok{};
}

Status send_processing(const HostDataOptions& options, const channels::ResultOptions& result) {
  YARD_ASSIGN(const auto outputs, processing_outputs(options));
  for (const ProcessingOutput& output : outputs)
    if (!output.is_continuous)
      YARD_TRY(channels::upload_files({output.folder}, output.url, result));
  return Ok{};
}

}  // namespace

Status fetch_input(const HostDataOptions& options, const StopToken& stop,
                   channels::ChannelProgress& progress, HostInput& input) {
  if (options.plan->kind == jobs::HostJobKind::kProcessing)
    return fetch_processing(options, stop, progress, input);
  YARD_TRY(fetch_channels(options, stop, progress, input));
  YARD_TRY(fetch_checkpoint(options, stop, progress, input));
  YARD_TRY(add_intermediate(options, stop, input));
  return fetch_source(options, stop, progress);
}

std::string result_uri(const HostPlan& plan, const std::string& name) {
  std::string base = plan.output.s3_uri;
  while (base.ends_with('/')) base.pop_back();
  return fmt::format("{}/{}/output/{}{}", base, plan.job, name,
                     plan.output.compress ? ".tar.gz" : "/");
}

Status send_results(const HostDataOptions& options, const StopToken& stop,
                    jobs::HostStatus& status) {
  const HostPlan& plan = *options.plan;
  channels::ResultOptions result;
  result.open = options.open;
  result.stop = stop;
  const size_t cores =
      plan.cores.empty() ? size_t(::sysconf(_SC_NPROCESSORS_ONLN)) : plan.cores.size();
  result.thread_count = int(std::clamp<size_t>(cores, 1, kGzipThreadsMax));
  if (plan.kind == jobs::HostJobKind::kProcessing) return send_processing(options, result);
  if (plan.output.s3_uri.empty()) return Ok{};
  const auto send = plan.output.compress ? channels::upload_archive : channels::upload_files;
  if (!plan.model_dirs.empty()) {
    const std::string uri = result_uri(plan, "model");
    if (auto sent = send(plan.model_dirs, uri, result); !sent)
      return std::move(sent).error().while_("the model");
    status.model_uri = uri;
  }
  if (!plan.output_dirs.empty() && channels::has_files(plan.output_dirs)) {
    const std::string uri = result_uri(plan, "output");
    if (auto sent = send(plan.output_dirs, uri, result); !sent)
      return std::move(sent).error().while_("the output");
    status.output_uri = uri;
  }
  return Ok{};
}

}  // namespace yard::host
