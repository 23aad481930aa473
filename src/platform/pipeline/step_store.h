// What a pipeline moves in the store: a step's files before its job, the checkpoint of the step
// before, and its results afterwards.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "storage/location.h"

namespace yard::pipeline {

// The keys, below the checkpoints' folder, of the newest whole checkpoint: those of its folder, the
// manifest last. Empty: there is none. `keys` are relative to that folder. Pure.
std::vector<std::string> newest_checkpoint(const std::vector<std::string>& keys);

// Those that are older than the `kept` newest whole checkpoints, what is left of broken ones too,
// in the order in which they are to be removed. None where `kept` is 0. Pure.
std::vector<std::string> old_checkpoints(const std::vector<std::string>& keys, int kept);

// `text` as an object.
Status put_object(storage::Opener& opener, const std::string& url, std::string_view text);

// The newest checkpoint below the folder `from` as the first below `to`, copied by the store;
// nothing where `to` has one already. kNotFound: `from` has none.
Status carry_checkpoint(storage::Opener& opener, const std::string& from, const std::string& to);

// Removes old_checkpoints() below the folder. For when no job of the step runs: one that starts
// again reads all that it finds there. Returns how many objects.
Result<size_t> prune_checkpoints(storage::Opener& opener, const std::string& folder, int kept);

// What a step's run left below `url`, but its checkpoints and best models, as files in `dir`.
Status fetch_run(storage::Opener& opener, const std::string& url, const std::string& dir,
                 const StopToken& stop);

}  // namespace yard::pipeline
