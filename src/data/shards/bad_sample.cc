#include "shards/bad_sample.h"

#include "base/json.h"

namespace yard::shards {

std::string quarantine_line(const BadSample& sample) {
  Json bytes = Json::array();
  for (const BadSample::Bytes& part : sample.bytes)
    bytes.push_back(
        {{"member", part.member}, {"offset", part.offset}, {"size_bytes", part.size_bytes}});
  const Json line{{"shard", sample.shard},
                  {"key", sample.key},
                  {"offset", sample.offset},
                  {"reason", sample.reason},
                  {"bytes", bytes}};
  // Names need not be UTF-8, JSON must be.
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace yard::shards
