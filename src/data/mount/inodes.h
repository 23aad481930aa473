// Inodes: the numbers by which the kernel knows files and directories.
//
// A number stands for one version of a file: when its ETag or size changed, the name gets another
// number. So the kernel's page cache never holds pages of two versions under one, may keep them as
// long as it likes, and attributes of a number never change.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mount/listing.h"

namespace yard::mount {

inline constexpr uint64_t kRootInode = 1;

struct Attributes {
  uint64_t inode = 0;
  uint64_t visible_inode = 0;  // st_ino: the same for a name in every mount
  bool is_directory = false;
  uint64_t size_bytes = 0;
  std::chrono::system_clock::time_point modified{};
};

// Thread-safe.
class Inodes {
 public:
  // prefix: the key of the root, "" or "a/b/". started: the time of directories.
  Inodes(std::string prefix, std::chrono::system_clock::time_point started);

  // The number of that entry, for the kernel to hold once more. None when `parent` is no directory
  // the kernel holds.
  std::optional<Attributes> acquire(uint64_t parent, const Entry& entry);
  // The kernel lets go of it `count` times.
  void release(uint64_t inode, uint64_t count);

  std::optional<Attributes> attributes(uint64_t inode) const;
  // Of what a listing shows, without holding it.
  Attributes attributes_of(const std::string& directory, const Entry& entry) const;

  struct File {
    std::string directory;  // the key of its folder
    std::string name;
    uint64_t parent = 0;
    std::string etag;
    uint64_t size_bytes = 0;
    std::string key() const { return directory + name; }
  };
  std::optional<File> file(uint64_t inode) const;
  std::optional<std::string> directory_key(uint64_t inode) const;

  size_t count() const;
  // Numbers held longest without being asked for, to be dropped from the kernel's cache: those
  // beyond `count_max`, at most `limit` of them.
  struct Name {
    uint64_t parent;
    std::string name;
  };
  std::vector<Name> oldest(size_t count_max, size_t limit);

 private:
  struct Node {
    uint64_t parent = 0;
    std::string name;
    bool is_directory = false;
    uint64_t size_bytes = 0;
    std::string etag;
    std::chrono::system_clock::time_point modified{};
    uint64_t hold_count = 0;
    std::list<uint64_t>::iterator recent;
  };
  using Nodes = std::unordered_map<uint64_t, Node>;
  struct NameHash {
    size_t operator()(const std::pair<uint64_t, std::string>& name) const {
      return key_hash(name.second) ^ (name.first * 0x9e3779b97f4a7c15);
    }
  };

  std::optional<std::string> key_of(const Node& node) const;  // of a directory, with its slash
  Attributes attributes_of(uint64_t inode, const Node& node) const;

  const std::string prefix_;
  const std::chrono::system_clock::time_point started_;
  mutable std::mutex mutex_;
  Nodes nodes_;
  std::unordered_map<std::pair<uint64_t, std::string>, uint64_t, NameHash>
      names_;                   // newest version
  std::list<uint64_t> recent_;  // newest first; without the root
  uint64_t last_ = kRootInode;
};

}  // namespace yard::mount
