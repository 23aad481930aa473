#include "tensor/file_tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/file.h"

namespace yard::tensor {
namespace {

// Not every file system has O_TMPFILE.
UniqueFd open_nameless(const std::string& folder) {
  UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd.valid() || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string path = folder + "/.tensor-XXXXXX";
  fd.reset(::mkostemp(path.data(), O_CLOEXEC));
  if (fd.valid()) ::unlink(path.c_str());
  return fd;
}

}  // namespace

Result<at::Tensor> make_file_tensor(const std::string& folder, int64_t element_count,
                                    at::ScalarType type) {
  if (element_count == 0) return at::empty({0}, type);
  const size_t size_bytes = static_cast<size_t>(element_count) * c10::elementSize(type);
  const UniqueFd fd = open_nameless(folder);
  if (!fd.valid()) return errno_error(folder, errno);
  // A hole would be a SIGBUS where the disk is full.
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size_bytes)); error != 0)
    return errno_error(folder, error);
  void* memory = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return errno_error(folder, errno);
  return at::from_blob(
      memory, {element_count}, [size_bytes](void* mapped) { ::munmap(mapped, size_bytes); },
      at::TensorOptions().dtype(type));
}

}  // namespace yard::tensor
