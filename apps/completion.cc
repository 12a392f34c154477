// millrace completion: prints a bash or zsh completion script generated from the command line's declaration.
#include <fmt/format.h>

#include "command.h"
#include "declaration.h"

namespace millrace {
namespace {

constexpr const char* kCompletionExamples = R"(Examples:
  millrace completion bash > ~/.local/share/bash-completion/completions/millrace
  millrace completion zsh > ~/.zfunc/_millrace             needs  fpath+=(~/.zfunc)  before compinit in ~/.zshrc)";

std::string joined_names(const std::vector<std::string>& names, const char* between) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : between) + name;
  return out;
}

std::string bash_script(const std::vector<DeclaredCommand>& commands) {
  std::string names, options, values;
  for (const DeclaredCommand& command : commands) {
    if (!command.name.empty()) names += (names.empty() ? "" : " ") + command.name;
    std::string words;
    for (const DeclaredOption& option : command.options) {
      words += (words.empty() ? "" : " ") + joined_names(option.names, " ");
      if (option.value.empty()) continue;
      std::string patterns;
      for (const std::string& name : option.names)
        patterns += fmt::format("{}'{}:{}'", patterns.empty() ? "" : "|", command.name, name);
      const std::string action = option.file ? "compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$cur\"))"
                                 : option.choices.empty() ? ":"
                                                          : fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))",
                                                                        joined_names(option.choices, " "));
      values += fmt::format("    {}) {}; return ;;\n", patterns, action);
    }
    options += fmt::format("    '{}') options='{}' ;;\n", command.name, words);
  }
  return fmt::format(R"(# bash completion for millrace; printed by `millrace completion bash`.
_millrace() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command='' options='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case " {0} " in *" ${{COMP_WORDS[i]}} "*) command=${{COMP_WORDS[i]}}; break ;; esac
  done
  case "$command:$prev" in
{1}  esac
  case "$command" in
{2}  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
  elif [[ -z $command ]]; then
    COMPREPLY=($(compgen -W '{0}' -- "$cur"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -F _millrace millrace
)",
                     names, values, options);
}

// Escapes text inside '...' and the [ ] and : of _arguments.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      out += std::string("\\") + c;
    else
      out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string zsh_script(const std::vector<DeclaredCommand>& commands) {
  std::string list, cases;
  for (const DeclaredCommand& command : commands) {
    if (!command.name.empty()) list += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.summary));
    std::string arguments;
    for (const DeclaredOption& option : command.options) {
      for (const std::string& name : option.names) {
        arguments += fmt::format("        '*{}[{}]", name, zsh_text(option.help));
        if (!option.value.empty())
          arguments += fmt::format(":{}:{}", zsh_text(option.value),
                                   option.file              ? "_files"
                                   : option.choices.empty() ? " "
                                                            : "(" + joined_names(option.choices, " ") + ")");
        arguments += "' \\\n";
      }
    }
    if (!command.name.empty())
      cases +=
          fmt::format("    {})\n      _arguments \\\n{}        '*:file:_files'\n      ;;\n", command.name, arguments);
  }
  return fmt::format(R"(#compdef millrace
# zsh completion for millrace; printed by `millrace completion zsh`.
_millrace() {{
  local -a commands
  commands=(
{0}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{1}  esac
}}
if [ "$funcstack[1]" = "_millrace" ]; then
  _millrace "$@"
else
  compdef _millrace millrace
fi
)",
                     list, cases);
}

}  // namespace

void add_completion_command(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = add_command(app, "completion", "Print a shell completion script", kCompletionExamples,
                                  [=, &app]() -> Result<int> {
                                    const auto commands = declared_commands(app);
                                    fmt::print("{}", *shell == "zsh" ? zsh_script(commands) : bash_script(commands));
                                    return 0;
                                  });
  command->add_option("shell", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
}

}  // namespace millrace
