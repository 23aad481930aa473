// yard complete-url: for the scripts of `yard completion`: buckets and keys that begin like a URL.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <sstream>

#include "store_options.h"

namespace yard::app {
namespace {

using namespace std::chrono_literals;

struct CompleteUrlCommand {
  std::string line;  // what is typed so far
  std::string url;
};

// The options on stores in a line that is not finished; quotes are not looked at.
StoreOptions options_of(const std::string& line) {
  StoreOptions options;
  const std::map<std::string, std::string*> known{{"--endpoint", &options.endpoint},
                                                  {"--region", &options.region},
                                                  {"--profile", &options.profile},
                                                  {"--address-style", &options.address_style}};
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word == "--anonymous") options.anonymous = true;
    const size_t equals = word.find('=');
    const auto option = known.find(word.substr(0, equals));
    if (option == known.end()) continue;
    if (equals != word.npos)
      *option->second = word.substr(equals + 1);
    else
      words >> *option->second;
  }
  return options;
}

// A person waits at the prompt: one attempt, and not for long.
storage::S3Options quick_options(const std::string& line, const Context& context) {
  storage::S3Options s3 = s3_options(options_of(line), context, 0);
  s3.retry.attempts_max = 1;
  s3.connect_timeout = 1s;
  s3.stall_timeout = 2s;
  return s3;
}

Status print_candidates(const CompleteUrlCommand& command, const Context& context) {
  constexpr std::string_view kScheme = "s3://";
  storage::Opener opener(quick_options(command.line, context));
  const std::string url = command.url.size() < kScheme.size() ? std::string(kScheme) : command.url;
  if (url.find('/', kScheme.size()) == url.npos) {
    YARD_ASSIGN(const auto service, opener.s3());
    YARD_ASSIGN(const auto names, service->list_buckets());
    for (const std::string& name : names)
      if (name.starts_with(url.substr(kScheme.size()))) fmt::print("{}{}/\n", kScheme, name);
    return Ok{};
  }
  YARD_ASSIGN(const Place place, open_place(opener, url));
  YARD_ASSIGN(const auto page, place.store->list({.prefix = place.key, .delimiter = "/"}));
  for (const std::string& folder : page.common_prefixes)
    fmt::print("{}\n", shown(place.url_of(folder)));
  for (const storage::ObjectInfo& info : page.objects)
    fmt::print("{}\n", shown(place.url_of(info.key)));
  return Ok{};
}

}  // namespace

void add_complete_url_command(CLI::App& app, Context& context) {
  auto command = std::make_shared<CompleteUrlCommand>();
  CLI::App* added = app.add_subcommand("complete-url", "buckets and keys that begin like a URL");
  added->group("");  // for the scripts of `yard completion` only
  added->add_option("LINE", command->line)->required();
  added->add_option("URL", command->url)->required();
  added->callback([command, &context] {
    // What fails, completes nothing: a message would stand in the middle of the prompt.
    context.action = [command, &context]() -> Status {
      static_cast<void>(print_candidates(*command, context));
      return Ok{};
    };
  });
}

}  // namespace yard::app
