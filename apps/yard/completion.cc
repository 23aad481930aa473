// yard completion: scripts that complete commands and options in a shell.
#include <fmt/format.h>

#include <cstdio>

#include "commands.h"

namespace yard::app {
namespace {

// Commands for our own use, and options for tests, are in no group.
bool is_shown(const CLI::App& command) {
  return !command.get_name().empty() && !command.get_group().empty();
}

// "ls cp ..." and "--json --endpoint ..." of one command.
std::string words_of(const CLI::App& command) {
  std::string words;
  for (const CLI::App* child : command.get_subcommands({}))
    if (is_shown(*child)) words += child->get_name() + " ";
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
  }
  if (!words.empty()) words.pop_back();
  return words;
}

// One "path) words=...;;" for each command, "yard shards pack" written "shards pack".
void append_cases(const CLI::App& command, const std::string& path, std::string& cases) {
  cases += fmt::format("    \"{}\") words=\"{}\" ;;\n", path, words_of(command));
  for (const CLI::App* child : command.get_subcommands({}))
    if (is_shown(*child))
      append_cases(*child, path.empty() ? child->get_name() : path + " " + child->get_name(),
                   cases);
}

// The words before the cursor that name commands; the first option or argument ends them.
std::string bash_script(const CLI::App& root) {
  std::string cases;
  append_cases(root, "", cases);
  return fmt::format(R"(_yard_words() {{
  case "$1" in
{}    *) return 1 ;;
  esac
}}
_yard() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" path="" words="" i
  _yard_words ""
  local best="$words"
  for ((i = 1; i < COMP_CWORD; i++)); do
    if _yard_words "${{path:+$path }}${{COMP_WORDS[i]}}"; then
      path="${{path:+$path }}${{COMP_WORDS[i]}}"
      best="$words"
    fi
  done
  COMPREPLY=()
  if [[ "$current" == -* || -z "$path" || "$best" != -* ]]; then
    COMPREPLY=($(compgen -W "$best" -- "$current"))
  fi
  [[ "$current" == -* ]] || COMPREPLY+=($(compgen -f -- "$current"))
}}
complete -o filenames -F _yard yard
)",
                     cases);
}

std::string zsh_script(const CLI::App& root) {
  return "autoload -U +X bashcompinit && bashcompinit\n" + bash_script(root);
}

}  // namespace

void add_completion_command(CLI::App& app, Context& context) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "a script that completes commands in your shell");
  command->add_option("SHELL", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  command->footer(
      "Examples:\n  source <(yard completion bash)      in ~/.bashrc\n"
      "  source <(yard completion zsh)       in ~/.zshrc\n");
  command->callback([shell, &app, &context] {
    context.action = [shell, &app]() -> Status {
      const std::string script = *shell == "bash" ? bash_script(app) : zsh_script(app);
      fmt::print("{}", script);
      return Ok{};
    };
  });
}

}  // namespace yard::app
