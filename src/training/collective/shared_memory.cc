#include "collective/shared_memory_internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace yard::collective {
namespace {

Result<std::byte*> map_whole(int fd, size_t size_bytes) {
  void* at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (at == MAP_FAILED) return errno_error("mapping shared memory", errno);
  return static_cast<std::byte*>(at);
}

}  // namespace

Result<SharedMemory> SharedMemory::create(size_t size_bytes) {
  SharedMemory memory;
  memory.fd_.reset(::memfd_create("yard-collective", MFD_CLOEXEC));
  if (!memory.fd_.valid()) return errno_error("memfd_create", errno);
  int error = 0;
  do {
    error = ::posix_fallocate(memory.fd_.get(), 0, static_cast<off_t>(size_bytes));
  } while (error == EINTR);
  if (error != 0) return errno_error("reserving shared memory", error);
  YARD_ASSIGN(memory.data_, map_whole(memory.fd_.get(), size_bytes));
  memory.size_bytes_ = size_bytes;
  return memory;
}

Result<SharedMemory> SharedMemory::map(UniqueFd fd, size_t size_bytes) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return errno_error("shared memory", errno);
  if (status.st_size < 0 || static_cast<size_t>(status.st_size) != size_bytes)
    return Error{Code::kCorrupt, "shared memory of another size than agreed"};
  SharedMemory memory;
  YARD_ASSIGN(memory.data_, map_whole(fd.get(), size_bytes));
  memory.size_bytes_ = size_bytes;
  memory.fd_ = std::move(fd);
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

size_t round_up(size_t size, size_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

}  // namespace yard::collective
