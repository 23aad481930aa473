// The results of a job: folders of its hosts to the store.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "channels/channel_set.h"

namespace yard::channels {

struct ResultOptions {
  OpenUrl open;
  int thread_count = 4;  // that compress
  StopToken stop;
};

// All of `folders` as one "model.tar.gz" at `url`. Visible whole or not at all.
Status upload_archive(const std::vector<std::string>& folders, const std::string& url,
                      const ResultOptions& options);
// Each file by itself under `url`, a folder's; of a name that several have, the first one's.
Status upload_files(const std::vector<std::string>& folders, const std::string& url,
                    const ResultOptions& options);

}  // namespace yard::channels
