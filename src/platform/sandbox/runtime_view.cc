#include "sandbox/runtime_view.h"

#include <fmt/format.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"

namespace yard::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSmallFileBytesMax = uint64_t{1} << 20;
constexpr std::string_view kSystemPath =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Of /etc, what programs need to run; not the secrets that also lie there.
constexpr std::array kEtcNames = {
    "alternatives", "bash.bashrc", "ca-certificates", "fonts",         "gai.conf",     "group",
    "host.conf",    "ld.so.cache", "ld.so.conf",      "ld.so.conf.d",  "locale.alias", "localtime",
    "magic",        "mime.types",  "networks",        "nsswitch.conf", "openmpi",      "OpenCL",
    "passwd",       "pki",         "profile",         "profile.d",     "protocols",    "python3",
    "python3.11",   "python3.12",  "python3.13",      "services",      "ssl",          "terminfo",
    "timezone",     "vulkan"};

bool is_below(const fs::path& path, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

void add_system(RuntimeView& view) {
  view.binds.push_back({"/usr", "/usr"});
  for (const char* name : {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}) {
    std::error_code error;
    if (fs::is_symlink(name, error))
      view.links.push_back({fs::read_symlink(name, error).string(), name});
    else
      view.binds.push_back({name, name, false, true});
  }
  for (const char* name : kEtcNames)
    view.binds.push_back({fmt::format("/etc/{}", name), fmt::format("/etc/{}", name), false, true});
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/opt", error))
    if (entry.path().filename() != "ml")
      view.binds.push_back({entry.path(), entry.path(), false, true});
}

// "home = /usr/bin" of pyvenv.cfg: the folder of the interpreter that the environment was made of.
Result<fs::path> base_interpreter_folder(const fs::path& venv) {
  const std::string path = venv / "pyvenv.cfg";
  auto text = read_file(path, kSmallFileBytesMax);
  if (!text) return std::move(text).error().while_("the runtime is no Python environment");
  std::string_view rest = *text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const auto trim = [](std::string_view part) {
      const auto begin = part.find_first_not_of(" \t\r");
      if (begin == std::string_view::npos) return std::string_view();
      return part.substr(begin, part.find_last_not_of(" \t\r") - begin + 1);
    };
    if (trim(line.substr(0, equals)) == "home") return fs::path(trim(line.substr(equals + 1)));
  }
  return Error{Code::kInvalidArgument, path + ": names no home"};
}

// The folder lib/python3.X/site-packages; empty where there is none.
fs::path site_packages(const fs::path& venv) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(venv / "lib", error))
    if (entry.path().filename().string().starts_with("python3"))
      return entry.path() / "site-packages";
  return {};
}

// Packages that are worked on lie elsewhere and are named by .pth files.
void add_named_packages(const fs::path& venv, RuntimeView& view) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(site_packages(venv), error)) {
    if (entry.path().extension() != ".pth") continue;
    const auto text = read_file(entry.path(), kSmallFileBytesMax);
    if (!text) continue;
    for (const std::string& folder : folders_of_pth(*text))
      if (!is_below(folder, venv) && !is_below(folder, "/usr"))
        view.binds.push_back({folder, folder, false, true});
  }
}

void add_outside_usr(const fs::path& folder, RuntimeView& view) {
  if (!folder.empty() && folder != "/" && !is_below(folder, "/usr") && !is_below(folder, "/bin"))
    view.binds.push_back({folder, folder, false, true});
}

// Where the environment itself cannot be written, pip installs beside it.
void install_beside(const fs::path& venv, RuntimeView& view) {
  const std::string version = site_packages(venv).parent_path().filename();
  view.env["PIP_PREFIX"] = "/opt/ml/packages";
  view.env["PYTHONPATH"] = fmt::format("/opt/ml/packages/lib/{}/site-packages", version);
  view.env["PATH"] = "/opt/ml/packages/bin:" + view.env["PATH"];
}

// Its programs know the environment by its true path, the plan perhaps by a link to it.
void bind_at_both_names(const std::string& source, bool is_writable, const fs::path& venv,
                        const std::string& python, RuntimeView& view) {
  view.binds.push_back({source, venv, is_writable, false});
  if (venv != fs::path(python)) view.binds.push_back({source, python, is_writable, false});
}

Result<RuntimeView> open_python(const std::string& python, const std::string& scratch_dir,
                                bool may_mount) {
  std::error_code error;
  const fs::path venv = fs::canonical(python, error);
  if (error) return errno_error(python, error.value()).while_("the job's runtime");
  YARD_ASSIGN(const fs::path home, base_interpreter_folder(venv));
  RuntimeView view;
  add_system(view);
  add_outside_usr(home.parent_path(), view);
  const fs::path program = fs::canonical(venv / "bin" / "python", error);
  if (error)
    return errno_error((venv / "bin/python").string(), error.value()).while_("the job's runtime");
  add_outside_usr(program.parent_path().parent_path(), view);
  add_named_packages(venv, view);
  view.python = fs::path(python) / "bin" / "python";
  view.env = {{"PATH", fmt::format("{}/bin:{}", python, kSystemPath)}, {"VIRTUAL_ENV", python}};
  if (may_mount) {
    auto overlay = Overlay::mount(venv, scratch_dir + "/runtime");
    if (overlay) {
      bind_at_both_names(overlay->merged(), true, venv, python, view);
      view.overlays.push_back(*std::move(overlay));
      view.is_writable = true;
      return view;
    }
    log_info("packages are installed beside the environment: {}", overlay.error().message);
  }
  bind_at_both_names(venv, false, venv, python, view);
  install_beside(venv, view);
  return view;
}

// A folder whose mount points may be missing: its entries one by one, over an empty folder.
void add_children(const fs::path& folder, const fs::path& target, RuntimeView& view) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path path = target / entry.path().filename();
    const std::string name = path;
    if (name == "/proc" || name == "/dev" || name == "/tmp" || name == "/run" || name == "/sys" ||
        name == "/opt/ml" || name == "/etc/hosts" || name == "/etc/hostname" ||
        name == "/etc/resolv.conf" || name == "/root")
      continue;
    if (entry.is_symlink(error))
      view.links.push_back({fs::read_symlink(entry.path(), error).string(), name});
    else if (name == "/etc" || name == "/opt")
      add_children(entry.path(), path, view);
    else
      view.binds.push_back({entry.path(), name});
  }
}

Result<RuntimeView> open_root(const std::string& root, const std::string& scratch_dir,
                              bool may_mount) {
  std::error_code error;
  if (!fs::is_directory(fs::path(root) / "usr", error) &&
      !fs::is_directory(fs::path(root) / "bin", error))
    return Error{Code::kNotFound, root + ": holds neither usr nor bin: no root folder"};
  RuntimeView view;
  view.python = "python3";
  view.env = {{"PATH", std::string(kSystemPath)}};
  if (may_mount) {
    auto overlay = Overlay::mount(root, scratch_dir + "/runtime");
    if (overlay) {
      view.binds.push_back({overlay->merged(), "/", true, false});
      view.overlays.push_back(*std::move(overlay));
      view.is_writable = true;
      return view;
    }
    log_info("the root folder is read-only: {}", overlay.error().message);
  }
  add_children(root, "/", view);
  view.env["PIP_PREFIX"] = "/opt/ml/packages";
  return view;
}

}  // namespace

Result<Overlay> Overlay::mount(const std::string& lower, const std::string& folder) {
  const std::string merged = folder + "/merged";
  for (const char* name : {"/upper", "/work", "/merged"}) YARD_TRY(make_directories(folder + name));
  // These separate options and layers in what the kernel is given.
  if ((lower + folder).find_first_of(":,\\") != std::string::npos)
    return Error{Code::kUnavailable, lower + ": cannot be named to an overlay mount"};
  const std::string options =
      fmt::format("lowerdir={},upperdir={}/upper,workdir={}/work", lower, folder, folder);
  if (::mount("trainyard", merged.c_str(), "overlay", 0, options.c_str()) != 0)
    return Error{Code::kUnavailable, errno_error("overlay on " + lower, errno).message};
  return Overlay(merged);
}

Overlay::~Overlay() {
  if (!merged_.empty()) ::umount2(merged_.c_str(), MNT_DETACH);
}

void Overlay::rebase(const std::string& from, const std::string& to) {
  if (merged_.starts_with(from + "/")) merged_ = to + merged_.substr(from.size());
}

void RuntimeView::rebase(const std::string& from, const std::string& to) {
  for (Bind& bind : binds)
    if (bind.source.starts_with(from + "/")) bind.source = to + bind.source.substr(from.size());
  for (Overlay& overlay : overlays) overlay.rebase(from, to);
}

std::vector<std::string> folders_of_pth(std::string_view text) {
  std::vector<std::string> folders;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (line.starts_with('/') && line != "/") folders.emplace_back(line);
  }
  return folders;
}

Result<RuntimeView> open_runtime(const jobs::PlanRuntime& runtime, const std::string& scratch_dir,
                                 bool may_mount) {
  if (!runtime.root.empty()) return open_root(runtime.root, scratch_dir, may_mount);
  return open_python(runtime.python, scratch_dir, may_mount);
}

}  // namespace yard::sandbox
