// What a channel's source holds, asked of the store.
#pragma once

#include <string>
#include <vector>

#include "channels/channel_set.h"
#include "channels/pipe_feeder.h"

namespace yard::channels {

bool is_for_group(const ChannelConfig& channel, const std::string& group);
// Which of how many this host is, of those that get the channel; it is one of them (contract).
struct HostShare {
  size_t index = 0;
  size_t count = 1;
};
HostShare share_of_host(const ChannelConfig& channel, const ChannelOptions& options);

struct SourceFile {
  std::shared_ptr<storage::ObjectStore> store;
  storage::ObjectInfo info;
  std::string path;  // below the channel's folder
};

// All under the prefix, none when there is nothing. Codes of the store and of paths_of_keys().
Result<std::vector<SourceFile>> files_of_prefix(const std::string& url, const OpenUrl& open);
// What this host gets of a prefix or manifest. kNotFound: the source is empty; an entry is missing.
Result<std::vector<SourceFile>> files_of_channel(const ChannelConfig& channel,
                                                 const ChannelOptions& options);
// The lines of an augmented manifest that this host gets.
Result<std::vector<PipeRecord>> records_of_manifest(const ChannelConfig& channel,
                                                    const ChannelOptions& options);

}  // namespace yard::channels
