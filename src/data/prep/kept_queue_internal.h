// A queue in the folder of a state that is in a store: kept there from run to run.
#pragma once

#include "prep/prep_run.h"

namespace yard::prep {

// "<journal_prefix>queue-0.db" into the folder, where it is there and the folder has none; nothing
// where the queue is elsewhere, or the state a folder.
Status fetch_queue(const PrepSpec& spec, const PrepPlaces& places);
// And back, as of now.
Status keep_queue(const PrepSpec& spec, const PrepPlaces& places);

}  // namespace yard::prep
