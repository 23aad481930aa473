#include "gateway/key_walk.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <functional>

#include "base/log.h"
#include "gateway/key_path.h"
#include "storage/directory_store.h"
#include "storage/keys.h"

namespace yard::gateway {
namespace {

// Two ticks of the slowest kernel clock (100 Hz), by which folders are stamped.
constexpr int64_t kSettleNs = 20'000'000;

int64_t ns_of(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FolderState state_of(int fd) {
  struct stat info = {};
  ::fstat(fd, &info);
  return {info.st_ino, ns_of(info.st_mtim), ns_of(info.st_ctim)};
}

bool is_settled(const FolderState& state, Clock::Wall now) {
  const int64_t now_ns = now.time_since_epoch() / std::chrono::nanoseconds(1);
  return now_ns - std::max(state.mtime_ns, state.ctime_ns) > kSettleNs;
}

struct DirCloser {
  void operator()(DIR* stream) const { ::closedir(stream); }
};
using Dir = std::unique_ptr<DIR, DirCloser>;

// Calls `visit(name, is_folder, folder_fd)` until it returns false.
template <typename Visit>
void for_each_name(UniqueFd folder, Visit visit) {
  const Dir stream(::fdopendir(folder.release()));
  if (stream == nullptr) return;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat info = {};
      is_folder =
          ::fstatat(::dirfd(stream.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISDIR(info.st_mode);
    }
    if (!visit(name, is_folder, ::dirfd(stream.get()))) return;
  }
}

// Whether keys that are, or start with, folder + name belong to a walk of `prefix` behind `after`.
bool belongs(std::string_view folder, std::string_view name, bool is_folder,
             std::string_view prefix, std::string_view after) {
  std::string key(folder);
  key += name;
  const size_t shared = std::min(prefix.size(), key.size());
  if (std::string_view(key).substr(0, shared) != prefix.substr(0, shared)) return false;
  if (!is_folder) return key.size() >= prefix.size() && key > after;
  return key > after || after.starts_with(key);
}

// The names in an escaped folder, those cut into pieces put together. False from `visit` ends it.
using OddVisit = std::function<bool(const std::string& name, bool is_folder)>;
bool for_each_odd_name(UniqueFd folder, const std::string& before, const OddVisit& visit,
                       bool& has_pieces) {
  bool goes_on = true;
  for_each_name(std::move(folder), [&](std::string_view name, bool is_folder, int fd) {
    const auto odd = parse_odd_name(name);
    if (!odd || is_folder == (odd->kind == OddName::Kind::kLastPart)) return true;
    const std::string text = before + odd->text;
    if (odd->kind == OddName::Kind::kGoesOn) {
      has_pieces = true;
      UniqueFd below(
          ::openat(fd, std::string(name).c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (below.valid()) goes_on = for_each_odd_name(std::move(below), text, visit, has_pieces);
    } else {
      goes_on = visit(is_folder ? text + "/" : text, is_folder);
    }
    return goes_on;
  });
  return goes_on;
}

bool is_key_part(const std::string& folder, std::string_view name) {
  if (folder.empty() && name == storage::kStagingFolder) return false;
  if (storage::is_utf8(name) && folder.size() + name.size() <= kKeyBytesMax) return true;
  log_warning("not listed: the name of a file under '{}' cannot be a key", folder);
  return false;
}

}  // namespace

FolderContent read_folder(const Bucket& bucket, const std::string& folder, std::string_view prefix,
                          std::string_view after, Clock::Wall now) {
  FolderContent content;
  if (auto plain = bucket.plain_folder(folder)) {
    content.plain_state = state_of(plain->get());
    content.is_settled &= is_settled(*content.plain_state, now);
    for_each_name(*std::move(plain), [&](std::string_view name, bool is_folder, int) {
      const std::string full = is_folder ? std::string(name) + "/" : std::string(name);
      if (is_key_part(folder, name) && belongs(folder, full, is_folder, prefix, after))
        content.names.push_back(full);
      return true;
    });
  }
  if (auto odd = bucket.odd_folder(folder)) {
    content.odd_state = state_of(odd->get());
    bool has_pieces = false;
    for_each_odd_name(
        *std::move(odd), "",
        [&](const std::string& name, bool is_folder) {
          if (belongs(folder, name, is_folder, prefix, after)) content.names.push_back(name);
          return true;
        },
        has_pieces);
    // Folders of pieces change without a trace in this one.
    content.is_settled &= is_settled(*content.odd_state, now) && !has_pieces;
  }
  // A folder may be both; of a key that is, Bucket::open() says which is the object.
  std::ranges::sort(content.names);
  const auto doubles = std::ranges::unique(content.names);
  content.names.erase(doubles.begin(), doubles.end());
  return content;
}

bool holds_object(const Bucket& bucket, const std::string& folder) {
  bool found = false;
  std::vector<std::string> folders;
  const auto note = [&](const std::string& name, bool is_folder) {
    if (is_folder)
      folders.push_back(folder + name);
    else
      found = bucket.exists(folder + name);
    return !found;
  };
  if (auto plain = bucket.plain_folder(folder))
    for_each_name(*std::move(plain), [&](std::string_view name, bool is_folder, int) {
      if (!is_key_part(folder, name)) return true;
      return note(std::string(name) + (is_folder ? "/" : ""), is_folder);
    });
  bool has_pieces = false;
  if (auto odd = bucket.odd_folder(folder); odd && !found)
    for_each_odd_name(*std::move(odd), "", note, has_pieces);
  for (size_t i = 0; i < folders.size() && !found; ++i) found = holds_object(bucket, folders[i]);
  return found;
}

KeyWalk::KeyWalk(std::string prefix, std::string after, const Clock& clock)
    : clock_(&clock), prefix_(std::move(prefix)), after_(std::move(after)) {}

void KeyWalk::push(const Bucket& bucket, std::string folder) {
  Frame frame{std::move(folder), {}, 0};
  frame.content = read_folder(bucket, frame.folder, prefix_, after_, clock_->wall_now());
  for (const std::string& name : frame.content.names)
    memory_bytes_ += sizeof(name) + name.capacity();
  frames_.push_back(std::move(frame));
}

void KeyWalk::pop() {
  for (const std::string& name : frames_.back().content.names)
    memory_bytes_ -= sizeof(name) + name.capacity();
  frames_.pop_back();
}

std::optional<KeyWalk::Next> KeyWalk::peek(const Bucket& bucket) {
  // As deep as the prefix allows: its folders need no look at their siblings.
  if (!has_begun_) push(bucket, prefix_.substr(0, prefix_.rfind('/') + 1));
  has_begun_ = true;
  while (!frames_.empty()) {
    const Frame& frame = frames_.back();
    if (frame.at < frame.content.names.size()) {
      const std::string& name = frame.content.names[frame.at];
      return Next{frame.folder + name, name.ends_with('/')};
    }
    pop();
  }
  return std::nullopt;
}

void KeyWalk::enter(const Bucket& bucket) {
  Frame& frame = frames_.back();
  std::string folder = frame.folder + frame.content.names[frame.at];
  ++frame.at;
  push(bucket, std::move(folder));
}

void KeyWalk::pass() {
  ++frames_.back().at;
}

void KeyWalk::pass_all(std::string_view prefix) {
  while (!frames_.empty() && frames_.back().folder.starts_with(prefix)) pop();
  if (frames_.empty()) return;
  Frame& frame = frames_.back();
  const auto& names = frame.content.names;
  while (frame.at < names.size() && (frame.folder + names[frame.at]).starts_with(prefix))
    ++frame.at;
}

bool KeyWalk::is_current(const Bucket& bucket) const {
  return std::ranges::all_of(frames_, [&](const Frame& frame) {
    if (!frame.content.is_settled) return false;
    const auto now_of = [](const std::optional<UniqueFd>& folder) {
      return folder ? std::optional(state_of(folder->get())) : std::nullopt;
    };
    return now_of(bucket.plain_folder(frame.folder)) == frame.content.plain_state &&
           now_of(bucket.odd_folder(frame.folder)) == frame.content.odd_state;
  });
}

}  // namespace yard::gateway
