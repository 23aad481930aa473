#include "report/report.h"

#include "base/file.h"
#include "report/job_folder_internal.h"

namespace yard::report {

Result<std::string> make_report(const std::string& job_dir) {
  YARD_ASSIGN(const JobFolder folder, read_job_folder(job_dir));
  return render_page(folder.facts, folder.history, folder.samples);
}

Status write_report(const std::string& job_dir, const std::string& path) {
  Result<std::string> page = make_report(job_dir);
  if (!page) return std::move(page).error().while_("making the report");
  return write_file_atomic(path, *page);
}

}  // namespace yard::report
