// JobDesk: the part of engine::PlatformControl that the API speaks to; a test has one in memory.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/platform_control.h"

namespace yard::api {

// Methods, codes and threads as those of engine::PlatformControl.
class JobDesk {
 public:
  virtual ~JobDesk() = default;

  virtual Status create(const engine::JobRequest& request) = 0;
  virtual Result<engine::JobView> find(engine::JobKind kind, std::string_view name) = 0;
  virtual Result<engine::JobPage> list(const engine::JobFilter& filter) = 0;
  virtual Status stop(engine::JobKind kind, std::string_view name) = 0;
  virtual Status remove(engine::JobKind kind, std::string_view name) = 0;
  virtual Status update_keep_alive(std::string_view name, int64_t seconds) = 0;
  virtual Status update_request(std::string_view name, const Json& members) = 0;
  virtual Result<int> declare_slice_faulty(engine::JobKind kind, std::string_view name,
                                           std::string_view host) = 0;
  virtual int mend_slices() = 0;
  virtual Result<std::map<std::string, std::string>> tags(std::string_view arn) = 0;
  virtual Status add_tags(std::string_view arn, const std::map<std::string, std::string>& tags) = 0;
  virtual Status remove_tags(std::string_view arn, const std::vector<std::string>& keys) = 0;
};

}  // namespace yard::api
