// What a container of SageMaker finds below /opt/ml before its program starts, and which
// environment the platform gives it. The JSON is that of the service; all but write_layout() pure.
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

// Makes the folders and files below `ml_dir`, which is emptied first.
Status write_layout(const jobs::HostPlan& plan, const std::string& ml_dir,
                    const std::string& network_interface);

// Where a path that the job sees as /opt/ml/... lies. kInvalidArgument: not below /opt/ml.
Result<std::string> path_in_ml(const std::string& ml_dir, const std::string& path);

// `own`: the supervisor's environment, of which the job gets the credentials and nothing else.
std::map<std::string, std::string> platform_environment(
    const jobs::HostPlan& plan, const std::map<std::string, std::string>& own);

}  // namespace yard::host
