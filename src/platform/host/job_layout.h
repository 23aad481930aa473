// What a container of SageMaker finds below /opt/ml before its program starts, and which
// environment the platform gives it. The JSON is that of the service; pure but where it writes.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "jobs/host_plan.h"

namespace yard::host {

Json hyperparameters_json(const jobs::HostPlan& plan);  // text values, verbatim
Json resource_config_json(const jobs::HostPlan& plan, const std::string& network_interface);
Json input_data_config_json(const jobs::HostPlan& plan);
// Of a processing job.
Json processing_job_config_json(const jobs::HostPlan& plan);
Json processing_resource_config_json(const jobs::HostPlan& plan);

// Of the folder that jobs on one warm pool hand on, below /opt/ml.
inline constexpr const char* kWarmPoolCache = "/sagemaker/warmpoolcache";

// Makes the folders below `ml_dir`, which is emptied first.
Status make_layout_folders(jobs::HostJobKind kind, const std::string& ml_dir);
// The configuration files of the job, in the folders of make_layout_folders().
Status write_layout(const jobs::HostPlan& plan, const std::string& ml_dir,
                    const std::string& network_interface);

// Where a path that the job sees as /opt/ml/... lies. kInvalidArgument: not below /opt/ml.
Result<std::string> path_in_ml(const std::string& ml_dir, const std::string& path);

// What every process of every job gets: before anything of the job is known.
std::map<std::string, std::string> sandbox_environment();
// `own`: the supervisor's environment, of which the job gets the credentials and nothing else.
std::map<std::string, std::string> platform_environment(
    const jobs::HostPlan& plan, const std::map<std::string, std::string>& own);

}  // namespace yard::host
