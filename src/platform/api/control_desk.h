// ControlDesk: the JobDesk of `yard serve`.
#pragma once

#include "api/job_desk.h"

namespace yard::api {

// Thread-safe. `control` outlives it.
class ControlDesk final : public JobDesk {
 public:
  explicit ControlDesk(engine::PlatformControl& control) : control_(control) {}

  Status create(const engine::JobRequest& request) override { return control_.create(request); }
  Result<engine::JobView> find(engine::JobKind kind, std::string_view name) override {
    return control_.find(kind, name);
  }
  Result<engine::JobPage> list(const engine::JobFilter& filter) override {
    return control_.list(filter);
  }
  Status stop(engine::JobKind kind, std::string_view name) override {
    return control_.stop(kind, name);
  }
  Status remove(engine::JobKind kind, std::string_view name) override {
    return control_.remove(kind, name);
  }
  Status update_keep_alive(std::string_view name, int64_t seconds) override {
    return control_.update_keep_alive(name, seconds);
  }
  Status update_request(std::string_view name, const Json& members) override {
    return control_.update_request(name, members);
  }
  Result<int> declare_slice_faulty(engine::JobKind kind, std::string_view name,
                                   std::string_view host) override {
    return control_.declare_slice_faulty(kind, name, host);
  }
  int mend_slices() override { return control_.mend_slices(); }
  Result<std::map<std::string, std::string>> tags(std::string_view arn) override {
    return control_.tags(arn);
  }
  Status add_tags(std::string_view arn, const std::map<std::string, std::string>& tags) override {
    return control_.add_tags(arn, tags);
  }
  Status remove_tags(std::string_view arn, const std::vector<std::string>& keys) override {
    return control_.remove_tags(arn, keys);
  }

 private:
  engine::PlatformControl& control_;
};

}  // namespace yard::api
