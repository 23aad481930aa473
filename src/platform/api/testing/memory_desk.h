// A JobDesk in memory: jobs do what the test says.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "api/job_desk.h"

namespace yard::api {

// Thread-safe. Jobs are created InProgress, with one host each, at times 1000, 1001, ...
class MemoryDesk final : public JobDesk {
 public:
  explicit MemoryDesk(std::string dir = "/nonexistent") : dir_(std::move(dir)) {}

  Status create(const engine::JobRequest& request) override {
    const std::lock_guard lock(mutex_);
    if (refuse_with) return *refuse_with;
    const auto key = std::pair(request.kind, request.name);
    if (jobs_.contains(key)) return Error{Code::kExhausted, request.name + ": there already"};
    engine::JobView view;
    view.job = request;
    view.status = "InProgress";
    view.secondary_status = "Starting";
    view.created_t = view.modified_t = 1000.0 + double(jobs_.size());
    view.changes = {{"Starting", view.created_t, {}, "Starting the job"}};
    view.hosts = {"algo-1"};
    view.dir = dir_ + "/" + request.name;
    jobs_[key] = std::move(view);
    return Ok{};
  }
  Result<engine::JobView> find(engine::JobKind kind, std::string_view name) override {
    const std::lock_guard lock(mutex_);
    const auto found = jobs_.find(std::pair(kind, std::string(name)));
    if (found == jobs_.end()) return Error{Code::kNotFound, std::string(name)};
    return found->second;
  }
  // Filters by kind, name and status; sorts by name or time; the token is the number of jobs seen.
  Result<engine::JobPage> list(const engine::JobFilter& filter) override {
    const std::lock_guard lock(mutex_);
    last_filter = filter;
    std::vector<engine::JobView> all;
    for (const auto& [key, view] : jobs_)
      if (key.first == filter.kind && key.second.find(filter.name_contains) != std::string::npos &&
          (filter.status.empty() || filter.status == view.status))
        all.push_back(view);
    if (filter.sort == engine::JobSort::kCreated)
      std::ranges::sort(all, {}, &engine::JobView::created_t);
    if (!filter.ascending) std::ranges::reverse(all);
    const size_t begin = filter.page_token.empty() ? 0 : std::stoul(filter.page_token);
    const size_t end = std::min(all.size(), begin + size_t(filter.limit));
    engine::JobPage page;
    for (size_t i = begin; i < end; ++i) page.jobs.push_back(all[i]);
    if (end < all.size()) page.next_token = std::to_string(end);
    return page;
  }
  // The first job is on slice 1.
  Result<int> declare_slice_faulty(engine::JobKind kind, std::string_view name,
                                   std::string_view host) override {
    YARD_ASSIGN(const engine::JobView view, find(kind, name));
    if (std::ranges::find(view.hosts, host) == view.hosts.end())
      return Error{Code::kNotFound, std::string(host)};
    faulty_slices.push_back(static_cast<int>(view.created_t) - 999);
    return faulty_slices.back();
  }
  int mend_slices() override { return static_cast<int>(std::exchange(faulty_slices, {}).size()); }
  Status stop(engine::JobKind kind, std::string_view name) override {
    return change(kind, name, [](engine::JobView& view) -> Status {
      if (view.status != "InProgress") return Error{Code::kInvalidArgument, "it has ended"};
      view.status = "Stopping";
      return Ok{};
    });
  }
  Status remove(engine::JobKind kind, std::string_view name) override {
    const std::lock_guard lock(mutex_);
    const auto found = jobs_.find(std::pair(kind, std::string(name)));
    if (found == jobs_.end()) return Error{Code::kNotFound, std::string(name)};
    if (found->second.status == "InProgress") return Error{Code::kInvalidArgument, "it runs"};
    jobs_.erase(found);
    return Ok{};
  }
  Status update_keep_alive(std::string_view name, int64_t seconds) override {
    keep_alive_s = seconds;
    return change(engine::JobKind::kTraining, name, [](engine::JobView&) { return Status(Ok{}); });
  }
  Status update_request(std::string_view name, const Json& members) override {
    return change(engine::JobKind::kTraining, name, [&](engine::JobView& view) {
      view.job.request.update(members);
      return Status(Ok{});
    });
  }
  Result<std::map<std::string, std::string>> tags(std::string_view arn) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, view] : jobs_)
      if (view.job.arn == arn) return view.job.tags;
    return Error{Code::kNotFound, std::string(arn)};
  }
  Status add_tags(std::string_view arn, const std::map<std::string, std::string>& tags) override {
    return change_at(arn, [&](engine::JobView& view) {
      for (const auto& [key, value] : tags) view.job.tags[key] = value;
    });
  }
  Status remove_tags(std::string_view arn, const std::vector<std::string>& keys) override {
    return change_at(arn, [&](engine::JobView& view) {
      for (const std::string& key : keys) view.job.tags.erase(key);
    });
  }

  template <typename Change>
  Status change(engine::JobKind kind, std::string_view name, Change&& how) {
    const std::lock_guard lock(mutex_);
    const auto found = jobs_.find(std::pair(kind, std::string(name)));
    if (found == jobs_.end()) return Error{Code::kNotFound, std::string(name)};
    return how(found->second);
  }

  std::vector<int> faulty_slices;
  std::optional<Error> refuse_with;  // what create() answers
  int64_t keep_alive_s = -1;         // of the last update_keep_alive()
  engine::JobFilter last_filter;

 private:
  template <typename Change>
  Status change_at(std::string_view arn, Change&& how) {
    const std::lock_guard lock(mutex_);
    for (auto& [key, view] : jobs_)
      if (view.job.arn == arn) {
        how(view);
        return Ok{};
      }
    return Error{Code::kNotFound, std::string(arn)};
  }

  const std::string dir_;
  std::mutex mutex_;
  std::map<std::pair<engine::JobKind, std::string>, engine::JobView> jobs_;
};

// What the SDK of version 2 sends at the least.
inline Json smallest_training_input(const std::string& name) {
  return {{"TrainingJobName", name},
          {"AlgorithmSpecification",
           {{"TrainingImage", "123456789012.dkr.ecr.us-east-1.amazonaws.com/x:latest"},
            {"TrainingInputMode", "File"}}},
          {"RoleArn", "arn:aws:iam::123456789012:role/SageMakerRole"},
          {"OutputDataConfig", {{"S3OutputPath", "s3://b/out/"}}},
          {"ResourceConfig",
           {{"InstanceType", "ml.m5.large"}, {"InstanceCount", 1}, {"VolumeSizeInGB", 30}}},
          {"StoppingCondition", {{"MaxRuntimeInSeconds", 3600}}}};
}

}  // namespace yard::api
