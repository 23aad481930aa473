#include "gateway/notifications.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "gateway/folders.h"
#include "gateway/temp_file.h"
#include "net/encoding.h"

namespace yard::gateway {
namespace {

constexpr const char* kFileName = "notification.xml";

}  // namespace

bool wants(const NotificationRule& rule, const ObjectEvent& event) {
  if (!event.key.starts_with(rule.key_prefix) || !event.key.ends_with(rule.key_suffix))
    return false;
  const std::string name = "s3:" + event.name;
  return std::ranges::any_of(rule.events, [&](std::string_view wanted) {
    if (!wanted.ends_with('*')) return name == wanted;
    return name.starts_with(wanted.substr(0, wanted.size() - 1));
  });
}

S3Result<std::vector<NotificationRule>> Notifications::rules(const std::string& bucket) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = rules_.find(bucket); found != rules_.end()) return found->second;
  const std::string path = bucket + "/" + kFileName;
  std::vector<NotificationRule> rules;
  const auto text = read_small_file(settings_fd_, path, kXmlBytesMax);
  if (!text && errno != ENOENT) return s3_errno(path, errno);
  if (text) {
    YARD_ASSIGN(rules, read_notification_rules(*text));
  }
  rules_[bucket] = rules;
  return rules;
}

S3Status Notifications::set_rules(const std::string& bucket, std::vector<NotificationRule> rules) {
  const std::scoped_lock lock(mutex_);
  if (::mkdirat(settings_fd_, bucket.c_str(), 0777) != 0 && errno != EEXIST)
    return s3_errno(bucket, errno);
  const UniqueFd folder(
      ::openat(settings_fd_, bucket.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return s3_errno(bucket, errno);
  YARD_ASSIGN(TempFile file, TempFile::make(folder.get()));
  YARD_TRY(file.write(bytes_of(write_notification_rules(rules))));
  YARD_TRY(file.sync());
  if (!file.rename_to(folder.get(), kFileName, TempFile::Existing::kReplaced))
    return s3_errno(bucket, errno);
  YARD_TRY(sync_folder(folder.get()));
  rules_[bucket] = std::move(rules);
  return Ok{};
}

void Notifications::forget(const std::string& bucket) {
  const std::scoped_lock lock(mutex_);
  rules_.erase(bucket);
}

void Notifications::tell(ObjectEvent event) {
  if (!sink_) return;
  const auto known = rules(event.bucket);
  if (!known) {
    log_error("the notification rules of bucket {} cannot be read: {}", event.bucket,
              known.error().message);
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    const auto now = uint64_t(event.time.time_since_epoch() / std::chrono::nanoseconds(1));
    last_sequencer_ = std::max(last_sequencer_ + 1, now);
    event.sequencer = last_sequencer_;
  }
  for (const NotificationRule& rule : *known)
    if (wants(rule, event)) sink_(event, rule);
}

}  // namespace yard::gateway
