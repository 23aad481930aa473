#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <span>

#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"
#include "models/safetensors.h"
#include "models/safetensors_internal.h"
#include "tensor/guard_torch.h"

namespace yard::models {
namespace {

using Sink = std::function<Status(std::span<const std::byte>)>;

std::string_view name_of(at::ScalarType type) {
  for (const SafetensorsDType& known : kSafetensorsDTypes) {
    if (known.type == type) return known.name;
  }
  return {};
}

std::vector<NamedTensor> in_file_order(std::vector<NamedTensor> tensors) {
  std::ranges::sort(tensors, [](const NamedTensor& a, const NamedTensor& b) {
    const auto wide_a = a.tensor.element_size(), wide_b = b.tensor.element_size();
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
  return tensors;
}

Result<std::string> header_of(const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  header["__metadata__"] = metadata;
  header["__metadata__"]["format"] = "pt";
  uint64_t offset = 0;
  for (const NamedTensor& t : tensors) {
    const std::string_view dtype = name_of(t.tensor.scalar_type());
    if (dtype.empty())
      return Error{Code::kInvalidArgument, "tensor '" + t.name + "': dtype cannot be stored"};
    if (header.contains(t.name))
      return Error{Code::kInvalidArgument, "tensor '" + t.name + "': name given twice"};
    const uint64_t end = offset + static_cast<uint64_t>(t.tensor.nbytes());
    header[t.name] = {
        {"dtype", dtype}, {"shape", t.tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data start on 8 bytes
  return text;
}

Status write_to(const Sink& sink, const std::vector<NamedTensor>& tensors,
                const std::map<std::string, std::string>& metadata) {
  return tensor::guard_torch("writing safetensors", [&]() -> Status {
    const std::vector<NamedTensor> ordered = in_file_order(tensors);
    YARD_ASSIGN(const std::string header, header_of(ordered, metadata));
    const uint64_t header_bytes = header.size();  // little-endian, like every machine we run on
    YARD_TRY(sink(std::as_bytes(std::span(&header_bytes, 1))));
    YARD_TRY(sink(std::as_bytes(std::span(header))));
    for (const NamedTensor& t : ordered) {
      const at::Tensor dense = t.tensor.detach().to(at::kCPU).contiguous();
      YARD_TRY(sink({static_cast<const std::byte*>(dense.const_data_ptr()), dense.nbytes()}));
    }
    return Ok{};
  });
}

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_error(path, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Ok{};
}

// The rename is durable only once its folder is.
Status sync_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) return errno_error(folder, errno);
  return Ok{};
}

}  // namespace

Result<std::string> safetensors_bytes(const std::vector<NamedTensor>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  std::string out;
  const Sink sink = [&out](std::span<const std::byte> bytes) -> Status {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Ok{};
  };
  YARD_TRY(write_to(sink, tensors, metadata));
  return out;
}

Status write_safetensors(storage::Upload& upload, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  return write_to([&upload](std::span<const std::byte> bytes) { return upload.write(bytes); },
                  tensors, metadata);
}

Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  const std::string staged = path + ".tmp-" + random_name(8);
  UniqueFd fd(::open(staged.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid()) return errno_error(path, errno);
  auto replace = [&]() -> Status {
    YARD_TRY(
        write_to([&](std::span<const std::byte> bytes) { return write_all(fd.get(), bytes, path); },
                 tensors, metadata));
    if (::fsync(fd.get()) != 0) return errno_error(path, errno);
    if (::rename(staged.c_str(), path.c_str()) != 0) return errno_error(path, errno);
    return Ok{};
  };
  Status replaced = replace();
  if (!replaced) {
    ::unlink(staged.c_str());
    return replaced;
  }
  return sync_folder_of(path);
}

}  // namespace yard::models
