#include "mount/mount_health.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/file.h"
#include "mount/mount_point.h"

namespace yard::mount {
namespace {

using std::chrono::steady_clock;

constexpr int kExitDead = 1;
constexpr std::chrono::duration<int, std::milli> kDeathMax{200};

// A question under way. Between fork() and _exit() the child makes system calls only.
class Question {
 public:
  static Result<Question> ask(const std::string& path) {
    Question question;
    const char* const name = path.c_str();
    question.child_ = ::fork();
    if (question.child_ < 0) return errno_error("fork", errno);
    if (question.child_ == 0) {
      struct statfs info;
      const bool is_dead =
          ::statfs(name, &info) != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
      ::_exit(is_dead ? kExitDead : 0);
    }
    question.pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, question.child_, 0)));
    return question;
  }
  Question(Question&& other) noexcept
      : child_(std::exchange(other.child_, -1)), pidfd_(std::move(other.pidfd_)) {}
  Question& operator=(Question&&) = delete;
  // One that waits in the kernel may not die before its mount does: nobody waits long for that.
  ~Question() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    pollfd item{pidfd_.get(), POLLIN, 0};
    ::poll(&item, 1, kDeathMax.count());
    ::waitpid(child_, nullptr, WNOHANG);
  }

  MountHealth answer(steady_clock::time_point until) {
    for (;;) {
      int status = 0;
      const pid_t ended = ::waitpid(child_, &status, WNOHANG);
      if (ended == child_) {
        child_ = -1;
        const bool is_dead = WIFEXITED(status) && WEXITSTATUS(status) == kExitDead;
        return is_dead ? MountHealth::kDead : MountHealth::kAnswers;
      }
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now());
      if (left.count() <= 0) return MountHealth::kSilent;
      pollfd item{pidfd_.get(), POLLIN, 0};
      ::poll(&item, 1, static_cast<int>(left.count()) + 1);
    }
  }

 private:
  Question() = default;

  pid_t child_ = -1;
  UniqueFd pidfd_;
};

}  // namespace

std::string_view to_string(MountHealth health) {
  switch (health) {
    case MountHealth::kAnswers:
      return "serving";
    case MountHealth::kDead:
      return "dead";
    case MountHealth::kSilent:
      return "does not answer";
  }
  YARD_UNREACHABLE();
}

Result<MountHealth> ask_mount(const std::string& path, std::chrono::milliseconds patience) {
  YARD_ASSIGN(Question question, Question::ask(path));
  return question.answer(steady_clock::now() + patience);
}

Result<std::vector<ListedMount>> list_mounts(std::chrono::milliseconds patience) {
  YARD_ASSIGN(const std::vector<MountedAt> found, mounts_of_yard());
  std::vector<Question> questions;
  for (const MountedAt& mounted : found) {
    YARD_ASSIGN(Question question, Question::ask(mounted.path));
    questions.push_back(std::move(question));
  }
  const auto until = steady_clock::now() + patience;
  std::vector<ListedMount> listed;
  for (size_t i = 0; i < found.size(); ++i)
    listed.push_back({found[i].path, found[i].source, questions[i].answer(until)});
  return listed;
}

}  // namespace yard::mount
