// Rows of the platform's tables, as values and back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobdb/migrations_internal.h"
#include "jobdb/platform_db.h"

namespace yard::jobdb::internal {

inline constexpr std::string_view kPlatformJobColumns =
    "id, kind, name, arn, request, user, dir, stage, ending, secondary, failure_reason, exit_code, "
    "created_t, modified_t, queued_t, training_start_t, training_end_t, attempt, relaunches, "
    "replaced_count, avoided_slices, host_was_at_fault, model_uri, output_uri, warm_state, "
    "keep_alive_s, warm_since_t, warm_until_t, reused_by";

// Each reads the columns of a row in the order of its constant or of the table. kCorrupt: a word
// that we never wrote. Tags are not in the row.
Result<PlatformJobRow> read_platform_job(Statement& row);
inline constexpr std::string_view kPlatformHostColumns =
    "name, life, group_name, instance_type, slice, cores, gpus, memory_bytes, price_per_hour, "
    "is_shared";
Result<PlatformHostRow> read_platform_host(Statement& row);
inline constexpr std::string_view kPlatformTransitionColumns =
    "id, job_id, t, from_stage, event, to_stage, work, work_done, detail";
Result<PlatformTransitionRow> read_platform_transition(Statement& row);

std::string list_to_text(const std::vector<int>& list);  // "[1,2]"

}  // namespace yard::jobdb::internal
