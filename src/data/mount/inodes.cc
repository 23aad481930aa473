#include "mount/inodes.h"

#include <algorithm>
#include <ranges>

namespace yard::mount {
namespace {

// A number that a 32-bit program, too, tells from others most of the time, and that is not 0.
uint64_t visible_inode_of(std::string_view key) {
  return key_hash(key) | 1;
}

}  // namespace

Inodes::Inodes(std::string prefix, std::chrono::system_clock::time_point started)
    : prefix_(std::move(prefix)), started_(started) {
  nodes_.emplace(kRootInode, Node{.is_directory = true, .modified = started_, .hold_count = 1});
}

std::optional<std::string> Inodes::key_of(const Node& node) const {
  std::vector<const std::string*> parts;
  const Node* at = &node;
  while (at->parent != 0) {
    parts.push_back(&at->name);
    const auto parent = nodes_.find(at->parent);
    if (parent == nodes_.end()) return std::nullopt;
    at = &parent->second;
  }
  std::string key = prefix_;
  for (const std::string* part : parts | std::views::reverse) key += *part + "/";
  return key;
}

Attributes Inodes::attributes_of(uint64_t inode, const Node& node) const {
  const auto parent = key_of(node);
  std::string key = parent.value_or(node.name);
  return {.inode = inode,
          .visible_inode = inode == kRootInode ? kRootInode : visible_inode_of(key),
          .is_directory = node.is_directory,
          .size_bytes = node.size_bytes,
          .modified = node.modified};
}

Attributes Inodes::attributes_of(const std::string& directory, const Entry& entry) const {
  return {.visible_inode = visible_inode_of(directory + entry.name + "/"),
          .is_directory = entry.is_directory,
          .size_bytes = entry.size_bytes,
          .modified = entry.is_directory ? started_ : entry.modified};
}

std::optional<Attributes> Inodes::acquire(uint64_t parent, const Entry& entry) {
  const std::lock_guard lock(mutex_);
  const auto folder = nodes_.find(parent);
  if (folder == nodes_.end() || !folder->second.is_directory) return std::nullopt;
  uint64_t& current = names_[{parent, entry.name}];
  if (const auto known = nodes_.find(current); current != 0 && known != nodes_.end()) {
    Node& node = known->second;
    if (node.is_directory == entry.is_directory && node.etag == entry.etag &&
        node.size_bytes == entry.size_bytes) {
      ++node.hold_count;
      recent_.splice(recent_.begin(), recent_, node.recent);
      return attributes_of(current, node);
    }
  }
  current = ++last_;
  recent_.push_front(current);
  const auto [made, is_new] =
      nodes_.emplace(current, Node{.parent = parent,
                                   .name = entry.name,
                                   .is_directory = entry.is_directory,
                                   .size_bytes = entry.size_bytes,
                                   .etag = entry.etag,
                                   .modified = entry.is_directory ? started_ : entry.modified,
                                   .hold_count = 1,
                                   .recent = recent_.begin()});
  YARD_CHECK(is_new);
  return attributes_of(current, made->second);
}

void Inodes::release(uint64_t inode, uint64_t count) {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(inode);
  if (found == nodes_.end() || inode == kRootInode) return;
  Node& node = found->second;
  node.hold_count -= std::min(count, node.hold_count);
  if (node.hold_count > 0) return;
  const auto name = names_.find({node.parent, node.name});
  if (name != names_.end() && name->second == inode) names_.erase(name);
  recent_.erase(node.recent);
  nodes_.erase(found);
}

std::optional<Attributes> Inodes::attributes(uint64_t inode) const {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(inode);
  if (found == nodes_.end()) return std::nullopt;
  return attributes_of(inode, found->second);
}

std::optional<Inodes::File> Inodes::file(uint64_t inode) const {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(inode);
  if (found == nodes_.end() || found->second.is_directory) return std::nullopt;
  const auto parent = nodes_.find(found->second.parent);
  if (parent == nodes_.end()) return std::nullopt;
  auto directory = key_of(parent->second);
  if (!directory) return std::nullopt;
  const Node& node = found->second;
  return File{*std::move(directory), node.name, node.parent, node.etag, node.size_bytes};
}

std::optional<std::string> Inodes::directory_key(uint64_t inode) const {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(inode);
  if (found == nodes_.end() || !found->second.is_directory) return std::nullopt;
  return key_of(found->second);
}

size_t Inodes::count() const {
  const std::lock_guard lock(mutex_);
  return nodes_.size();
}

std::vector<Inodes::Name> Inodes::oldest(size_t count_max, size_t limit) {
  const std::lock_guard lock(mutex_);
  std::vector<Name> names;
  size_t excess = nodes_.size() > count_max ? nodes_.size() - count_max : 0;
  excess = std::min(excess, limit);
  for (size_t i = 0; i < excess && !recent_.empty(); ++i) {
    const uint64_t inode = recent_.back();
    // What the kernel keeps in spite of us (open, a working directory) is not tried again soon.
    recent_.splice(recent_.begin(), recent_, std::prev(recent_.end()));
    const Node& node = nodes_.find(inode)->second;
    names.push_back({node.parent, node.name});
  }
  return names;
}

}  // namespace yard::mount
