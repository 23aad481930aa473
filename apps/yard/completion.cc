// yard completion: scripts that complete commands, options, their values and URLs in a shell.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "commands.h"

namespace yard::app {
namespace {

// Commands for our own use, and options for tests, are in no group.
bool is_shown(const CLI::App& command) {
  return !command.get_name().empty() && !command.get_group().empty();
}

// "auto path virtual" of the type "TEXT:{auto,path,virtual}", CLI::IsMember's words.
std::string values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin);
  if (begin == type.npos || end == type.npos) return "";
  std::string values = type.substr(begin + 1, end - begin - 1);
  std::ranges::replace(values, ',', ' ');
  return values;
}

// `names` of one command, each with a blank behind it.
std::string commands_of(const CLI::App& command) {
  std::string names;
  for (const CLI::App* child : command.get_subcommands({}))
    if (is_shown(*child)) names += child->get_name() + " ";
  return names;
}

std::string options_of(const CLI::App& command) {
  std::string names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names += "--" + name + " ";
  }
  return names;
}

std::string argument_values_of(const CLI::App& command) {
  std::string values;
  for (const CLI::Option* option : command.get_options())
    if (option->get_positional() && !values_of(*option).empty()) values += values_of(*option) + " ";
  return values;
}

struct Cases {
  std::string commands;  // "path) commands=... options=... values=..." of each command
  std::string values;    // "path --option) values=..." of each option that takes one
};

void append_option_cases(const CLI::App& command, const std::string& path, Cases& cases) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty() || option->get_items_expected_max() == 0) continue;
    std::string patterns;
    for (const std::string& name : option->get_lnames())
      patterns += fmt::format("{}\"{} --{}\"", patterns.empty() ? "" : "|", path, name);
    for (const std::string& name : option->get_snames())
      patterns += fmt::format("{}\"{} -{}\"", patterns.empty() ? "" : "|", path, name);
    if (!patterns.empty())
      cases.values += fmt::format("    {}) values=\"{}\" ;;\n", patterns, values_of(*option));
  }
}

// "yard shards pack" is written "shards pack".
void append_cases(const CLI::App& command, const std::string& path, Cases& cases) {
  cases.commands +=
      fmt::format("    \"{}\") commands=\"{}\" options=\"{}\" values=\"{}\" ;;\n", path,
                  commands_of(command), options_of(command), argument_values_of(command));
  append_option_cases(command, path, cases);
  for (const CLI::App* child : command.get_subcommands({}))
    if (is_shown(*child))
      append_cases(*child, path.empty() ? child->get_name() : path + " " + child->get_name(),
                   cases);
}

// The words before the cursor that name commands; the first option or argument ends them. Where a
// shell takes ':' for the end of a word, an s3:// URL lies in three words, of which only the last
// is replaced.
constexpr std::string_view kScript = R"bash(_yard_add() {
  local found
  while IFS= read -r found; do
    [[ -z "$found" ]] || COMPREPLY+=("$found")
  done <<<"$1"
}
_yard_add_urls() {
  local url found cut="" backslash="\\"
  case "$current" in
    s3:*) url="$current" ;;
    :) url="s3:" cut="s3:" ;;
    *) url="s3:$current" cut="s3:" ;;
  esac
  url="${url//"$backslash"/}"
  while IFS= read -r found; do
    [[ -z "$found" ]] || COMPREPLY+=("${found#"$cut"}")
    if [[ "$found" == */ ]] && type compopt >/dev/null 2>&1; then compopt -o nospace; fi
  done <<<"$("${COMP_WORDS[0]}" complete-url "${COMP_LINE:0:$COMP_POINT}" "$url" 2>/dev/null)"
}
_yard() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
  local named="" commands="" options="" values="" before="" i
  COMPREPLY=()
  [[ "$COMP_CWORD" -lt 2 ]] || before="${COMP_WORDS[COMP_CWORD-2]}"
  if [[ "$current" == s3:* || "$before$previous" == s3: || "$previous$current" == s3: ]]; then
    _yard_add_urls
    return
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    if _yard_words "${named:+$named }${COMP_WORDS[i]}"; then
      named="${named:+$named }${COMP_WORDS[i]}"
    fi
  done
  _yard_words "$named"
  if [[ "$previous" == -* ]] && _yard_values "$named $previous"; then
    if [[ -n "$values" ]]; then
      _yard_add "$(compgen -W "$values" -- "$current")"
    else
      _yard_files
    fi
  elif [[ "$current" == -* ]]; then
    _yard_add "$(compgen -W "$options" -- "$current")"
  elif [[ -n "$commands$values" ]]; then
    _yard_add "$(compgen -W "$commands$values" -- "$current")"
  else
    _yard_files
  fi
}
)bash";

constexpr std::string_view kBashEnd = R"bash(_yard_files() {
  _yard_add "$(compgen -f -- "$current")"
}
complete -o filenames -F _yard yard
)bash";

// zsh runs the same functions as a Korn shell would, and completes files by itself. Its own
// imitation of bash's `complete` takes a URL for a path and throws its front away.
constexpr std::string_view kZshEnd =
    R"zsh((( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i; }
autoload -Uz +X bashcompinit && bashcompinit
_yard_files() {
  yard_wants_files=1
}
_yard_zsh() {
  local yard_wants_files="" COMP_LINE="${(j: :)words[1,CURRENT]}"
  local COMP_CWORD=$((CURRENT - 1)) COMP_POINT=${#COMP_LINE}
  local -a COMP_WORDS COMPREPLY folders others
  COMP_WORDS=("${words[@]}")
  () { emulate -L ksh; _yard; }
  if [[ -n "$yard_wants_files" ]]; then
    _files
    return
  fi
  folders=("${(@M)COMPREPLY:#*/}") others=("${(@)COMPREPLY:#*/}")
  (( $#folders )) && compadd -S '' -a folders
  (( $#others )) && compadd -a others
}
compdef _yard_zsh yard
)zsh";

std::string functions_of(const CLI::App& root) {
  Cases cases;
  append_cases(root, "", cases);
  return fmt::format(
      "_yard_words() {{\n  case \"$1\" in\n{}    *) return 1 ;;\n  esac\n}}\n"
      "_yard_values() {{\n  case \"$1\" in\n{}    *) return 1 ;;\n  esac\n}}\n{}",
      cases.commands, cases.values, kScript);
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
      "Completes commands, options, their values, files, and the buckets and keys of s3:// URLs.\n"
      "Examples:\n  source <(yard completion bash)      in ~/.bashrc\n"
      "  source <(yard completion zsh)       in ~/.zshrc\n");
  command->callback([shell, &app, &context] {
    context.action = [shell, &app]() -> Status {
      fmt::print("{}{}", functions_of(app), *shell == "bash" ? kBashEnd : kZshEnd);
      return Ok{};
    };
  });
}

}  // namespace yard::app
